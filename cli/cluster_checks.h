// SPDX-License-Identifier: Apache-2.0
// `kubectl ferry doctor`: checks whether VMs can get a node's GPUs, as far as the API server shows it. Pure.
// Only `ferry doctor` on the node sees the host itself.
#pragma once

#include <optional>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "cli/cluster_facts.h"
#include "common/check.h"

namespace ferry {

/// `objects`: a node and its pods. `kubevirts`: the cluster's KubeVirt objects; absent: they cannot be read.
std::vector<Check> cluster_checks(const ClusterObjects& objects,
                                  const std::optional<std::vector<nlohmann::json>>& kubevirts);

}  // namespace ferry
