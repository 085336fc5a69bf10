// SPDX-License-Identifier: Apache-2.0
// Inside this room: NVIDIA's driver switches virtual functions, MIG mode and mixed sizes only of a GPU that
// nobody has open. Who has one open and is on the release list lets go for that, and takes hold again;
// anybody else has the GPU refused.
#pragma once

#include <vector>

#include "vfio/letting_go.h"
#include "vgpu-dm/apply.h"
#include "vgpu-dm/plan.h"

namespace ferry {

/// Refuses GPUs that would be switched and that others have open; puts into the plans of the rest who lets go
/// (GpuPlan::releases).
void plan_release(const VgpuView& view, VgpuPlan& plan);

/// Has them let go: what came of it, for each GPU of the plan. A GPU of whom somebody was not even asked is
/// refused in the plan.
std::vector<Asker> let_go(const ReleaseContext& context, const Inventory& inventory,
                          StoppedServices& services, VgpuPlan& plan);

/// The look behind that decides: refuses GPUs that somebody has open still, or anew.
void refuse_held(const VgpuView& view, VgpuPlan& plan);

ReleaseContext release_context(const VgpuHost& on);

}  // namespace ferry
