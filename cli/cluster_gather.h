// SPDX-License-Identifier: Apache-2.0
// `kubectl ferry gather`: what support needs to know of a cluster, as one document. Only what is listed here
// is taken of an object; environments, arguments of other programs, volumes, annotations of others and labels
// that support does not need (gathered_labels.h), addresses of machines, cloud-init and Secrets never are.
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
  std::string space;  ///< where Ferry is installed: its ConfigMaps and Leases
};

struct Gathered {  // NOLINT(bugprone-exception-escape): JSON is moved, which throws nothing
  nlohmann::json document;
  std::vector<std::string>
      notes;          ///< those of the document: whoever keeps it in a file reads them nowhere else
  bool whole = true;  ///< false: something failed that the role permits and the cluster knows
};

/// Nodes; the pods that have GPUs or are of Ferry, KubeVirt's launchers or NVIDIA's operator; VMs; the
/// KubeVirt object; Ferry's ConfigMaps and Leases; events of nodes; the ends of Ferry's own logs
/// (cluster_logs.h). What the role does not show, and what the
/// cluster does not know, is said under `notes`, and so is what failed. Errors: those of `ask` for nodes.
Result<Gathered> gather_cluster(const AskForPart& ask, const AskForLog& ask_for_log,
                                const GatherPlace& place);

// What is taken of one object; null: nothing. `space`: where Ferry is.
nlohmann::json gathered_node(const nlohmann::json& node);
nlohmann::json gathered_pod(const nlohmann::json& pod, const std::string& space);
nlohmann::json gathered_vmi(const nlohmann::json& vmi);
nlohmann::json gathered_kubevirt(const nlohmann::json& kubevirt);
nlohmann::json gathered_config_map(const nlohmann::json& config_map);
nlohmann::json gathered_lease(const nlohmann::json& lease);
nlohmann::json gathered_event(const nlohmann::json& event);

}  // namespace ferry
