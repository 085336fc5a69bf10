// SPDX-License-Identifier: Apache-2.0
// Inside this room: what must be so on a GPU before its vGPUs can be made, and only the driver's library can
// make so: MIG mode, GPU instances, vGPUs of different sizes. Pure functions of what the library said.
//
// MIG mode changes only while the GPU has no virtual functions, and switching those takes all GPU instances
// and mixed sizes with it: hence two stages, one on each side of them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "mdev/gpu_management.h"
#include "vgpu-dm/gpu_match.h"
#include "vgpu-dm/plan.h"

namespace ferry {

/// Whether the library has to be asked before a GPU can be planned for an item. It is slow: it wakes the GPU.
bool asks_library(const ProfileItem& item, const VgpuGpu& gpu);

/// Whether a GPU's virtual functions may have to go for an item: it is given away whole, or its MIG mode
/// changes. `said`: what the library says of it; nullptr: nothing, and then the mode stays.
bool may_shed_functions(const ProfileItem& item, const VgpuGpu& gpu, const ManagedGpu* said);

/// Whether its functions or modes may be switched for an item, or certainly not. `said` as above.
bool may_switch(const ProfileItem& item, const VgpuGpu& gpu, const ManagedGpu* said);

struct Preparation {
  std::vector<VgpuStep> steps;  ///< empty: nothing to do, or refused
  std::optional<Error> refusal;
  std::vector<VgpuStep> later = {};  ///< as GpuPlan::later
};

/// The next stage's steps. What the GPU carries and the item does not ask for must have gone for them. What
/// can never fit is refused before any of it.
Preparation prepare(const ProfileItem& item, const GpuMatch& match, const VgpuGpu& gpu, const VgpuView& view);

/// Why a GPU's virtual functions may not be switched off: a GPU instance would go along that could not be put
/// back. Nothing when they may, or nobody knows.
std::optional<Error> cannot_lose_instances(const ProfileItem& item, const VgpuGpu& gpu, const VgpuView& view);

VgpuStep functions_off(const VgpuGpu& gpu, std::string why);

/// The way back, one stage at a time like the way there. While the GPU carries a vGPU only GPU instances
/// change, those that carry none; virtual functions that somebody uses stay, and the mode with them.
/// `had_functions` is whether it had any.
std::vector<VgpuStep> plan_undo_preparation(const VgpuGpu& gpu, bool had_functions, const ManagedGpu& before,
                                            const ManagedGpu& now, const UseReport& use);
/// What of it is not as it was, as clauses; none: all is. (plan.h: not_put_back())
std::vector<std::string> preparation_not_put_back(const ManagedGpu& before, const ManagedGpu& now);

}  // namespace ferry
