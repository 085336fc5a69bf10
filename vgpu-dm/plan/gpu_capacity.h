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
  std::vector<std::string> notes;  ///< cases that only the driver can decide, once other vGPUs are removed
};

/// Applies the driver's rule for equal-size mode: all vGPUs of a GPU have one framebuffer size. A vGPU of a
/// type can be made while the GPU carries fewer vGPUs, of any type, than that type's maximum. Each virtual
/// function carries one vGPU. For mixed sizes two bounds are known: each type's own maximum, and the memory.
CapacityCheck check_capacity(const GpuMatch& match, const mdev::VgpuGpu& gpu);

/// Error if the table of types shows that vGPUs cannot fit once the GPU has its virtual functions;
/// std::nullopt: they fit, or the table has no answer.
std::optional<Error> lacking_on_functions(const GpuMatch& match, const mdev::VgpuGpu& gpu);

/// True if time-sliced vGPUs on a GPU have several framebuffer sizes, as far as sizes are known.
bool carries_several_sizes(const mdev::VgpuGpu& gpu);

}  // namespace ferry::vgpu
