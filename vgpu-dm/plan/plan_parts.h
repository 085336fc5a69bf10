// SPDX-License-Identifier: Apache-2.0
// Helpers that all kinds of plans share.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "vgpu-dm/plan/gpu_match.h"
#include "vgpu-dm/plan/plan.h"

namespace ferry::vgpu {

VgpuStep removal_of(const mdev::VgpuGpu& gpu, const mdev::VgpuDevice& device, std::string why);
/// A step about the GPU itself.
VgpuStep step_of(VgpuStep::Kind kind, const mdev::VgpuGpu& gpu, std::uint32_t number, std::string why);

std::vector<TypeCount> counts_of(const mdev::VgpuGpu& gpu);

/// "VM render (pid 412) holds /dev/vfio/100"; empty: the vGPU has no user.
std::string users_of(const mdev::VgpuDevice& device, const vfio::UseReport& use);

/// The advice where users of vGPUs may have been missed: UseReport::blind is not empty.
std::string remedy_of_blindness(const vfio::UseReport& use);

/// Error that names the users if one of these vGPUs may not be removed; std::nullopt: all may.
std::optional<Error> in_use(const mdev::VgpuGpu& gpu, const std::vector<const mdev::VgpuDevice*>& devices,
                            const vfio::UseReport& use, std::string hint);

/// True if a GPU carries vGPUs, or may carry some that could not be read: its virtual functions then stay.
bool may_carry(const mdev::VgpuGpu& gpu);

/// True if a GPU has virtual functions that an item for the whole GPU wants gone.
bool sheds_functions(const ProfileItem& item, const mdev::VgpuGpu& gpu);

/// Errors that forbid switching off virtual functions, apart from those of vGPUs and of the functions that
/// `leaving` vGPUs are on. Lasting reasons come first. Empty: they may be switched off.
std::vector<Error> functions_in_use(const mdev::VgpuGpu& gpu, const vfio::UseReport& use,
                                    const std::vector<const mdev::VgpuDevice*>& leaving = {});

/// Steps that switch virtual functions on and off; `number` is that of functions to enable.
VgpuStep functions_on(const mdev::VgpuGpu& gpu, std::uint32_t number, std::string why);
VgpuStep functions_off(const mdev::VgpuGpu& gpu, std::string why);

VgpuStep autoprobe_step(const mdev::VgpuGpu& gpu, bool probe, std::string why);

/// Error if a vGPU that stays may not be changed: the given text ("p.yaml:7: GPU 0 (...): ... cannot be set")
/// and the vGPU's users; std::nullopt: it may.
std::optional<Error> cannot_change(const mdev::VgpuDevice& device, const std::string& what,
                                   const vfio::UseReport& use);

/// Error if a GPU must not be written to: a stuck write, or a part that could not be read.
std::optional<Error> cannot_write(const mdev::VgpuGpu& gpu, const VgpuSnapshot& snapshot);

/// Error with the reason why NVML's answer about a GPU is missing; its message continues `what`.
Error no_answer(const mdev::VgpuGpu& gpu, const VgpuSnapshot& snapshot, const std::string& what);

/// Adds a reason why a GPU is refused. All reasons are reported: a user should not be stopped for a GPU that
/// another reason still keeps unchanged.
void refuse(GpuPlan& plan, std::optional<Error> why);

/// Plans every GPU of the snapshot, and the device users that are quiesced for them.
VgpuPlan plan_each(const VgpuSnapshot& snapshot,
                   const std::function<GpuPlan(const VgpuSnapshot&, const mdev::VgpuGpu&)>& plan_one);

/// The plan of a GPU that nothing is asked of.
GpuPlan unmatched(const mdev::VgpuGpu& gpu);

// Sets parameters of existing vGPUs, without making the vGPUs anew.

/// Error if the parameters of vGPUs that stay cannot be set; std::nullopt: they can.
std::optional<Error> cannot_tune(const GpuMatch& match, const mdev::VgpuGpu& gpu, const vfio::UseReport& use);

/// Adds steps for vGPUs that stay and for vGPUs that the plan makes, whose ids are already known.
void add_params(const GpuMatch& match, const mdev::VgpuGpu& gpu, GpuPlan& plan);

/// Writes `text` as it is: a blank removes all parameters.
VgpuStep params_of(const mdev::VgpuGpu& gpu, const mdev::VgpuDevice& device, std::string text,
                   std::string why);

}  // namespace ferry::vgpu
