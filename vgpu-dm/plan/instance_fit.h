// SPDX-License-Identifier: Apache-2.0
// Decides if GPU instances of several profiles fit on one GPU. For a single profile the driver tells the
// number left (GpuInstanceProfile::left); for several it tells only where each may begin.
#pragma once

#include <cstdint>
#include <map>
#include <span>

#include "mdev/gpu_management.h"

namespace ferry::vgpu {

/// Number of GPU instances per profile.
using InstanceCounts = std::map<const mdev::GpuInstanceProfile*, std::uint32_t>;

/// True if `wanted` fits on a GPU beside `staying`, which keep their places. Counts compute slices, and the
/// memory slices that each instance takes from its start. Also true if the driver has told too little to say
/// no. The profiles are the GPU's own.
bool fit_together(const mdev::ManagedGpu& gpu, const InstanceCounts& wanted,
                  std::span<const mdev::GpuInstance> staying);

}  // namespace ferry::vgpu
