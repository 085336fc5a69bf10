// SPDX-License-Identifier: Apache-2.0
// `kubectl ferry gather`: the facts about a cluster that support needs, as one document. It takes only listed
// fields of an object. Never taken are environments, other programs' arguments and annotations, volumes,
// machines' addresses, cloud-init, Secrets, and labels that support does not need (gathered_labels.h).
// Messages and logs are masked (masked_text.h).
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "cli/cluster_logs.h"
#include "common/result.h"
#include "kube/paged_list.h"

namespace ferry {

struct GatherPlace {
  std::string space;  ///< Ferry's namespace, with its ConfigMaps and Leases
};

struct Gathered {  // NOLINT(bugprone-exception-escape): JSON is moved, which throws nothing
  nlohmann::json document;
  std::vector<std::string> notes;  ///< the document's own, for stderr when that goes to a file
  bool whole = true;  ///< false: a request failed for another reason than the role or an unknown kind
};

/// Gathers Nodes; pods that have GPUs or belong to Ferry, KubeVirt's launchers or NVIDIA's operator; VMs; the
/// KubeVirt object; Ferry's ConfigMaps and Leases; events of Nodes; the ends of Ferry's own logs
/// (cluster_logs.h). Lists that the role hides, that the cluster does not know, or that failed become
/// `notes`. Errors: those of `ask` for Nodes.
Result<Gathered> gather_cluster(const AskForPart& ask, const AskForLog& ask_for_log,
                                const GatherPlace& place);

// The part of one object that is taken; null: none. `space`: Ferry's namespace.
nlohmann::json gathered_node(const nlohmann::json& node);
nlohmann::json gathered_pod(const nlohmann::json& pod, const std::string& space);
nlohmann::json gathered_vmi(const nlohmann::json& vmi);
nlohmann::json gathered_kubevirt(const nlohmann::json& kubevirt);
nlohmann::json gathered_config_map(const nlohmann::json& config_map);
nlohmann::json gathered_lease(const nlohmann::json& lease);
nlohmann::json gathered_event(const nlohmann::json& event);

}  // namespace ferry
