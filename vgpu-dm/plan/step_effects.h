// SPDX-License-Identifier: Apache-2.0
// The write of each kind of step, and the check that the host shows its effect.
#pragma once

#include "common/result.h"
#include "mdev/gpu_management.h"
#include "mdev/vgpu_writes.h"
#include "vgpu-dm/apply/vgpu_step.h"

namespace ferry::vgpu {

/// The write of a step with VgpuStep::Target::vgpu. For set_placement, and for the placement of a new vGPU,
/// see placement_write().
AttributeWrite write_of(const VgpuStep& step);

/// Applies a step with VgpuStep::Target::library.
Result<> have_library_do(mdev::GpuManagement& library, const VgpuStep& step);

/// Checks that a later scan of the GPU shows the step's effect. `said`: the library's answer now, needed for
/// the library's steps; nullptr: it was not asked. Errc::failed, or the library's own error.
Result<> verify(const VgpuStep& step, const mdev::VgpuGpu& now, const Result<mdev::ManagedGpu>* said);

}  // namespace ferry::vgpu
