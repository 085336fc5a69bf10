// SPDX-License-Identifier: Apache-2.0
// `kubectl ferry doctor`: what keeps a node's GPUs from VMs, as far as the API server shows it. Pure. What
// only the host can say asks `ferry doctor` there.
#pragma once

#include <optional>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "cli/cluster_facts.h"
#include "common/check.h"

namespace ferry {

/// `objects`: a node and its pods. `kubevirts`: the KubeVirt objects of the cluster; absent: they cannot be
/// seen.
std::vector<Check> cluster_checks(const ClusterObjects& objects,
                                  const std::optional<std::vector<nlohmann::json>>& kubevirts);

}  // namespace ferry
