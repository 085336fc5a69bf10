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
  /// Its host bridge and the ports and switches above it, outermost first. Empty: not known.
  std::vector<std::string> bus_path = {};
  /// Of a vGPU, the GPU that carries it. Empty: it is none.
  std::string gpu = {};
};

/// Which GPUs a pod's vGPUs come from.
enum class VgpuPlacement {
  pack,    ///< those that carry most that are taken: others stay whole, for larger types or to be given away
  spread,  ///< those that carry least: each vGPU gets more of its GPU
};

/// Which `size` devices a container had best get, those in `must_include` first and in their order.
///
/// NUMA nodes by the rule of NVIDIA's KubeVirt plugin v1.6.0: the rest comes from the first node that can
/// hold the whole request, counting what is on it already; nodes are tried in order of the must-include
/// devices, then of `available`; when none can, from `available` in its order. Where vGPUs may come from
/// several such nodes and none must be included from there, it is the one with the best GPU by `placement`.
/// Devices without a known node, or not in `candidates`, count as one node of their own. On that node: vGPUs
/// by `placement`; others the fewest bridges apart, and from each other and from what must be included; where
/// several switches or IOMMU groups would do, those with the least left over, then in `available` order. The
/// rest comes back in `available` order, IDs given twice once, and fewer than `size` when there are no more.
/// Equal input gives equal output.
///
/// Errors: Errc::usage when more must be included than fit, or `size` is negative.
Result<std::vector<std::string>> preferred_allocation(std::span<const Candidate> candidates,
                                                      std::span<const std::string> available,
                                                      std::span<const std::string> must_include, int size,
                                                      VgpuPlacement placement = VgpuPlacement::pack);

}  // namespace ferry
