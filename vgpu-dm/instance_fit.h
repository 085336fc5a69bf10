// SPDX-License-Identifier: Apache-2.0
// Inside this room: do GPU instances of several kinds fit on one GPU beside each other? How many of one kind
// fit the driver tells (GpuInstanceProfile::left); of several kinds it tells only where each may begin.
#pragma once

#include <cstdint>
#include <map>
#include <span>

#include "mdev/gpu_management.h"

namespace ferry {

/// So many GPU instances of each profile.
using InstanceCounts = std::map<const GpuInstanceProfile*, std::uint32_t>;

/// Whether `wanted` can be on a GPU at once beside `staying`, which keep their places: by compute slices and
/// by the memory slices that each takes from where it may begin. True also where the driver has not told
/// enough to say no. The profiles are the GPU's own.
bool fit_together(const ManagedGpu& gpu, const InstanceCounts& wanted, std::span<const GpuInstance> staying);

}  // namespace ferry
