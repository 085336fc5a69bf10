// SPDX-License-Identifier: Apache-2.0
// Checks before any removal that a GPU has the capacity for a profile's vGPUs.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "vgpu-dm/plan/gpu_match.h"

namespace ferry::vgpu {

struct CapacityCheck {
  std::optional<Error> lacking;  ///< Errc::invalid_config if they cannot fit
  /// Entries with missing vGPUs, in the order in which they fit. Entries of unlisted types come late; after
  /// them only MIG-backed entries that may share a GPU instance with vGPUs that stay.
  std::vector<const Want*> order;
  std::vector<std::string> notes;  ///< cases that are not known before the vGPUs are made
};

/// Applies the driver's rule for equal-size mode: all vGPUs of a GPU have one framebuffer size. A vGPU of a
/// type can be made while the GPU carries fewer vGPUs, of any type, than that type's maximum. Each virtual
/// function carries one vGPU. For mixed sizes two bounds are known: each type's own maximum, and the memory.
/// `instances_fit`: the driver's library has told that the GPU instances of MIG-backed types fit.
CapacityCheck check_capacity(const GpuMatch& match, const mdev::VgpuGpu& gpu, bool instances_fit);

/// Error if the time-sliced vGPUs cannot fit on the empty GPU with all its virtual functions; std::nullopt:
/// they fit, or it is not known.
std::optional<Error> lacking_when_empty(const GpuMatch& match, const mdev::VgpuGpu& gpu);

/// Error if the GPU instances of the MIG-backed types do not fit on the GPU, alone or together, by the known
/// profiles of these types. For a GPU about which the driver's library gives no answer.
std::optional<Error> lacking_instances(const GpuMatch& match, const mdev::VgpuGpu& gpu);

/// True if time-sliced vGPUs on a GPU have several framebuffer sizes, as far as sizes are known.
bool carries_several_sizes(const mdev::VgpuGpu& gpu);

}  // namespace ferry::vgpu
