// SPDX-License-Identifier: Apache-2.0
// Quiesces device users before a GPU is switched: NVIDIA's driver switches virtual functions, MIG mode and
// mixed sizes only of a GPU that no process has open. A user on the release list is quiesced and later
// resumed; any other user gets the GPU refused.
#pragma once

#include <vector>

#include "vfio/quiesce/quiesce_plan.h"
#include "vgpu-dm/apply/apply.h"
#include "vgpu-dm/plan/plan.h"

namespace ferry::vgpu {

/// Refuses GPUs that would be switched and that other users have open. Adds to the other plans the device
/// users to quiesce (GpuPlan::releases).
void plan_release(const VgpuSnapshot& snapshot, VgpuPlan& plan);

/// Quiesces these users and returns the result for each GPU of the plan. A GPU is refused in the plan if one
/// of its users was not even asked.
std::vector<vfio::QuiesceRequest> quiesce(const vfio::RebindContext& context,
                                          const vfio::Inventory& inventory, vfio::StoppedServices& services,
                                          VgpuPlan& plan);

/// Decides from a scan after the quiesce: refuses GPUs that are still, or again, open.
void refuse_held(const VgpuSnapshot& snapshot, VgpuPlan& plan);

vfio::RebindContext release_context(const VgpuHost& on);

}  // namespace ferry::vgpu
