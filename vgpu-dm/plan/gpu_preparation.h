// SPDX-License-Identifier: Apache-2.0
// Prepares a GPU for its vGPUs with settings that only the driver's library can change: MIG mode, GPU
// instances, mixed sizes. Pure functions of the library's answer.
//
// MIG mode changes only while the GPU has no virtual functions, and switching functions deletes GPU instances
// and mixed sizes. So there are two stages: before the functions are switched on, and after.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "common/result.h"
#include "mdev/gpu_management.h"
#include "vgpu-dm/plan/gpu_match.h"
#include "vgpu-dm/plan/plan.h"
#include "vgpu-dm/types/type_names.h"
#include "vgpu-dm/types/type_table.h"

namespace ferry::vgpu {

// Plans the GPU instances that a GPU's MIG-backed vGPUs need: a pure function.
//
// A GPU instance carries vGPUs of one framebuffer size, of any series, as many as its profile has memory for.
// The profile that a type needs is never taken from the type's name.

struct Preparation {
  std::vector<VgpuStep> steps = {};  ///< empty: nothing to do, or refused
  std::optional<Error> refusal = {};
  std::vector<VgpuStep> later = {};  ///< see GpuPlan::later
};

/// Unneeded instances stay unless they are, or may be, in the way. A needed instance without vGPUs is removed
/// and made anew if another instance must begin in its place. `busy` instances carry vGPUs that stay: they
/// have room only for vGPUs of the same size. Of a want counts its entry, and the vGPUs that it keeps on a
/// known GPU instance. Removals come first, then the largest. Errc::unsupported:
/// neither the driver nor the table knows a type's profile, or the GPU lacks it. Errc::invalid_config: the
/// instances do not fit on the GPU, alone or together.
Preparation plan_instances(const mdev::VgpuGpu& on, std::span<const Want> wants, const mdev::ManagedGpu& gpu,
                           const std::set<std::uint32_t>& busy);

/// True if a plan for the item needs the library's answer. Asking is slow: it wakes the GPU.
bool asks_library(const ProfileItem& item, const mdev::VgpuGpu& gpu);

/// True if a GPU's virtual functions may have to be switched off or bound for an item: the GPU goes to a VM
/// whole, its MIG mode changes, or its vGPUs are such functions. `said`: the library's answer; nullptr: none,
/// and MIG mode stays.
bool may_shed_functions(const ProfileItem& item, const mdev::VgpuGpu& gpu, const mdev::ManagedGpu* said);

/// True if functions or modes may have to be switched for an item; false: certainly not. `said` as above.
bool may_switch(const ProfileItem& item, const mdev::VgpuGpu& gpu, const mdev::ManagedGpu* said);

/// Steps of the next stage. They assume that vGPUs which the item does not ask for are already removed. A
/// request that can never fit is refused before any step.
Preparation prepare(const ProfileItem& item, const GpuMatch& match, const mdev::VgpuGpu& gpu,
                    const VgpuSnapshot& snapshot);

/// Error if switching off virtual functions would delete a GPU instance that cannot be restored.
/// std::nullopt: none would be lost, or the library has not answered.
std::optional<Error> cannot_lose_instances(const ProfileItem& item, const mdev::VgpuGpu& gpu,
                                           const VgpuSnapshot& snapshot);

/// Plans the rollback of a preparation, one stage at a time. While the GPU carries a vGPU, only GPU instances
/// without vGPUs change. Virtual functions in use stay, and so does the mode. `had_functions`: the GPU had
/// virtual functions before.
std::vector<VgpuStep> plan_undo_preparation(const mdev::VgpuGpu& gpu, bool had_functions,
                                            const mdev::ManagedGpu& before, const mdev::ManagedGpu& now,
                                            const vfio::UseReport& use);
/// Differences from `before`, as clauses; empty: all is restored. See not_put_back() in plan.h.
std::vector<std::string> preparation_not_put_back(const mdev::ManagedGpu& before,
                                                  const mdev::ManagedGpu& now);

}  // namespace ferry::vgpu
