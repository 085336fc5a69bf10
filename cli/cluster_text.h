// SPDX-License-Identifier: Apache-2.0
// What `kubectl ferry` shows, for people. `columns` absent: as wide as it takes.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "cli/cluster_facts.h"

namespace ferry {

/// A row for each resource of each node, with who has it; below them what is wrong.
std::string list_text(const ClusterGpus& cluster, std::optional<std::size_t> columns);
std::string node_text(const ClusterGpus& cluster, const ClusterNode& node,
                      std::optional<std::size_t> columns);
std::string vms_text(const ClusterGpus& cluster, std::optional<std::size_t> columns);

}  // namespace ferry
