// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/result.h"

namespace ferry {

/// The facts about a device that the choice uses.
struct Candidate {
  std::string id;
  std::optional<int> numa_node;
  std::uint32_t iommu_group = 0;
  /// The host bridge, ports and switches above it, outermost first. Empty: not known.
  std::vector<std::string> bus_path = {};
  /// A vGPU's GPU. Empty: not a vGPU.
  std::string gpu = {};
};

/// The GPUs that a pod's vGPUs come from.
enum class VgpuPlacement {
  pack,    ///< the fullest GPUs, so that others stay free for larger types or passthrough
  spread,  ///< the emptiest GPUs, so that each vGPU gets more of its GPU
};

/// The `size` devices that suit a container best. The result does not depend on the order of the input, which
/// is random from the kubelet. Among equally good devices the first by ID are chosen.
///
/// The devices come from one NUMA node if one suffices: preferably that of the devices that must be included,
/// else the one with the fewest devices left over. If none suffices, they come from as few nodes as possible.
/// Devices without a known node, or not in `candidates`, count as one node of their own. Within a node the
/// devices have the fewest bridges between each other and the included ones, below the switch or in the IOMMU
/// group with the fewest left over. vGPUs also come from one node, and there from the GPUs that `placement`
/// prefers; among nodes that can hold the whole request, the one with the best GPU is chosen.
///
/// The answer begins with `must_include` in its order; the rest follows in the order of `available`. Repeated
/// IDs count once. The answer is shorter than `size` if there are no more devices.
///
/// Errors: Errc::usage: more devices must be included than `size`, or `size` is negative.
Result<std::vector<std::string>> preferred_allocation(std::span<const Candidate> candidates,
                                                      std::span<const std::string> available,
                                                      std::span<const std::string> must_include, int size,
                                                      VgpuPlacement placement = VgpuPlacement::pack);

}  // namespace ferry
