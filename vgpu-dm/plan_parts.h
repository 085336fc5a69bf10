// SPDX-License-Identifier: Apache-2.0
// Inside this room: what plans of every kind have in common.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "vgpu-dm/plan.h"

namespace ferry {

VgpuStep removal_of(const VgpuGpu& gpu, const VgpuDevice& device, std::string why);

/// So many of each type that a GPU carries.
std::vector<TypeCount> counts_of(const VgpuGpu& gpu);

/// "VM render (pid 412) holds /dev/vfio/100"; empty: nobody uses it.
std::string holders_of(const VgpuDevice& device, const UseReport& use);

/// Why none of these may be removed; nothing when all may.
std::optional<Error> in_use(const VgpuGpu& gpu, const std::vector<const VgpuDevice*>& devices,
                            const UseReport& use, std::string hint);

/// Whether a GPU carries vGPUs, or may for all that could be read of its functions: those are not taken away.
bool may_carry(const VgpuGpu& gpu);

/// Whether a GPU has virtual functions that an item for the whole of it wants gone.
bool sheds_functions(const ProfileItem& item, const VgpuGpu& gpu);

/// Why a GPU's virtual functions may not be switched off, leaving aside what its vGPUs say, and who uses
/// those of them that `leaving` are on: what lasts comes first. None when they may.
std::vector<Error> functions_in_use(const VgpuGpu& gpu, const UseReport& use,
                                    const std::vector<const VgpuDevice*>& leaving = {});

/// Why nothing of a vGPU that stays may be changed: `what` ("p.yaml:7: GPU 0 (...): ... cannot be set") and
/// its users; nothing when it may.
std::optional<Error> cannot_change(const VgpuDevice& device, const std::string& what, const UseReport& use);

/// Why nothing may be written to a GPU: a write that has not returned, or what could not be read.
std::optional<Error> cannot_write(const VgpuGpu& gpu, const VgpuView& view);

/// One reason more why a GPU is refused. All of them are told: who uses a GPU shall not go for one that is
/// not changed all the same.
void refuse(GpuPlan& plan, std::optional<Error> why);

/// What a look at the node as a whole has found beside its GPUs.
std::vector<std::string> use_notes(const VgpuView& view);

}  // namespace ferry
