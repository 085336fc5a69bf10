// SPDX-License-Identifier: Apache-2.0
// The output of `kubectl ferry` as JSON. Keys are only ever added; unknown values are null.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "cli/cluster_facts.h"

namespace ferry {

/// `list`: {"nodes": [...], "notes": [...]}; each resource of a node lists its users.
nlohmann::json list_document(const ClusterGpus& cluster);
/// `node`: one entry of "nodes" with its labels, and the notes.
nlohmann::json node_document(const ClusterGpus& cluster, const ClusterNode& node);
/// `vms`: {"vms": [...], "notes": [...]}: KubeVirt's VMs, and pods in Kata's VMs.
nlohmann::json vms_document(const ClusterGpus& cluster);

}  // namespace ferry
