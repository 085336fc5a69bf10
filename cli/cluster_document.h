// SPDX-License-Identifier: Apache-2.0
// What `kubectl ferry` shows, for machines. Keys are only ever added to; what is not known is null.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "cli/cluster_facts.h"

namespace ferry {

/// `list`: {"nodes": [...], "notes": [...]}; each resource of a node with who has it.
nlohmann::json list_document(const ClusterGpus& cluster);
/// `node`: one of those nodes with its labels, and the notes.
nlohmann::json node_document(const ClusterGpus& cluster, const ClusterNode& node);
/// `vms`: {"vms": [...], "notes": [...]}: VMs and pods in Kata's VMs.
nlohmann::json vms_document(const ClusterGpus& cluster);

}  // namespace ferry
