// SPDX-License-Identifier: Apache-2.0
// The device users that leave a GPU before it is switched: NVIDIA's driver switches virtual functions, MIG
// mode and mixed sizes only of a GPU that no process has open. A user on the release list is quiesced and
// later resumed; any other user gets the GPU refused.
#pragma once

#include "vgpu-dm/plan/plan.h"

namespace ferry::vgpu {

/// Refuses GPUs that would be switched and that other users have open. Adds to the other plans the device
/// users to quiesce (GpuPlan::releases).
void plan_release(const VgpuSnapshot& snapshot, VgpuPlan& plan);

/// Decides from a scan after the quiesce: refuses GPUs that are still, or again, open.
void refuse_held(const VgpuSnapshot& snapshot, VgpuPlan& plan);

}  // namespace ferry::vgpu
