// SPDX-License-Identifier: Apache-2.0
// What `kubectl ferry` asks an API server for: lists, and nothing else.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "cli/cluster_facts.h"
#include "common/result.h"
#include "kube/paged_list.h"

namespace ferry {

/// Nodes, and the pods with GPUs that have not ended; with `vmis` KubeVirt's VMs too. A cluster without
/// KubeVirt has none; a role that does not show them is a note. Errors: those of `ask`.
enum class VmisRead { no, yes };
Result<ClusterObjects> read_cluster(const AskForPart& ask, VmisRead vmis);

/// One node and its pods that have not ended. Errc::not_found: there is no such node.
Result<ClusterObjects> read_cluster_node(const AskForPart& ask, const std::string& node);

/// The KubeVirt objects: none where the cluster has no KubeVirt; absent where the role does not show them.
/// Errors: those of `ask`.
Result<std::optional<std::vector<nlohmann::json>>> read_kubevirts(const AskForPart& ask);

}  // namespace ferry
