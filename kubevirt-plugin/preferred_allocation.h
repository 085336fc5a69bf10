// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/result.h"

namespace ferry {

/// What the choice among devices knows of one of them.
struct Candidate {
  std::string id;
  std::optional<int> numa_node;
  std::uint32_t iommu_group = 0;
};

/// Which `size` devices a container had best get, those in `must_include` first and in their order.
///
/// The rule is that of NVIDIA's KubeVirt plugin v1.6.0: the rest comes, in `available` order, from the first
/// NUMA node that can hold the whole request, counting what is on it already; nodes are tried in order of the
/// must-include devices, then of `available`; when none can, from `available` in its order. Devices without a
/// known node, or not in `candidates`, count as one node of their own. IDs given twice count once. Fewer than
/// `size` come back when there are no more. Equal input gives equal output.
///
/// Errors: Errc::usage when more must be included than fit, or `size` is negative.
Result<std::vector<std::string>> preferred_allocation(std::span<const Candidate> candidates,
                                                      std::span<const std::string> available,
                                                      std::span<const std::string> must_include, int size);

}  // namespace ferry
