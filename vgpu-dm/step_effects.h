// SPDX-License-Identifier: Apache-2.0
// Inside this room: what each kind of step does to the host, and how one sees that it held.
#pragma once

#include "common/result.h"
#include "mdev/gpu_management.h"
#include "mdev/vgpu_writes.h"
#include "vgpu-dm/vgpu_step.h"

namespace ferry {

/// What a step of a vGPU (VgpuStep::Target::vgpu) writes; of set_placement and of the place that a created
/// one gets, see placement_write().
AttributeWrite write_of(const VgpuStep& step);

/// Has the driver's library do a step (VgpuStep::Target::library).
Result<> have_library_do(GpuManagement& library, const VgpuStep& step);

/// Whether a look at the GPU made since shows the step done. `said`: what the library says now, which steps
/// that it does need; nullptr: it was not asked. Errc::failed, or the library's own error.
Result<> verify(const VgpuStep& step, const VgpuGpu& now, const Result<ManagedGpu>* said);

}  // namespace ferry
