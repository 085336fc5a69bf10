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

/// Which `size` devices a container had best get. The choice does not depend on the order in which they are
/// given: the kubelet's is any. Where several are as good, it is the first by ID.
///
/// Of one NUMA node where one can hold the rest, best that of what must be included, else the one with the
/// least left over; where none can, of as few as can be. Devices without a known node, or not in
/// `candidates`, count as one node of their own. On a node: the fewest bridges apart, and from each other and
/// from what must be included, and of the switch or IOMMU group with the least left over. vGPUs come from one
/// node as well, and there from the GPUs that `placement` has first; where several nodes hold the whole
/// request, from that with the best GPU.
///
/// The answer has those in `must_include` first, in their order, and the rest in that of `available`; IDs
/// given twice once, and fewer than `size` when there are no more.
///
/// Errors: Errc::usage when more must be included than fit, or `size` is negative.
Result<std::vector<std::string>> preferred_allocation(std::span<const Candidate> candidates,
                                                      std::span<const std::string> available,
                                                      std::span<const std::string> must_include, int size,
                                                      VgpuPlacement placement = VgpuPlacement::pack);

}  // namespace ferry
