// SPDX-License-Identifier: Apache-2.0
// The output of `kubectl ferry` for people. `columns` absent: no limit of width.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "cli/cluster_facts.h"

namespace ferry {

/// A row for each resource of each node, with its users; below the rows the faults.
std::string list_text(const ClusterGpus& cluster, std::optional<std::size_t> columns);
std::string node_text(const ClusterGpus& cluster, const ClusterNode& node,
                      std::optional<std::size_t> columns);
std::string vms_text(const ClusterGpus& cluster, std::optional<std::size_t> columns);

}  // namespace ferry
