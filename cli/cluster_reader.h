// SPDX-License-Identifier: Apache-2.0
// The lists that `kubectl ferry` reads from an API server. It writes nothing.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "cli/cluster_facts.h"
#include "common/result.h"
#include "kube/paged_list.h"

namespace ferry {

/// Reads Nodes and the pods with GPUs that have not ended; `vmis` adds KubeVirt's VMs. A cluster without
/// KubeVirt has no VMs; a role that hides them becomes a note. Errors: those of `ask`.
enum class VmisRead { no, yes };
Result<ClusterObjects> read_cluster(const AskForPart& ask, VmisRead vmis);

/// Reads one node and its pods that have not ended. Errc::not_found: there is no such node.
Result<ClusterObjects> read_cluster_node(const AskForPart& ask, const std::string& node);

/// Reads the KubeVirt objects. Empty: the cluster has no KubeVirt. Absent: the role hides them. Errors: those
/// of `ask`.
Result<std::optional<std::vector<nlohmann::json>>> read_kubevirts(const AskForPart& ask);

}  // namespace ferry
