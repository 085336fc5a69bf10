// SPDX-License-Identifier: Apache-2.0
// Sets parameters of existing vGPUs, without making the vGPUs anew.
#pragma once

#include <optional>
#include <string>

#include "vgpu-dm/plan/gpu_match.h"
#include "vgpu-dm/plan/plan.h"

namespace ferry::vgpu {

/// Error if the parameters of vGPUs that stay cannot be set; std::nullopt: they can.
std::optional<Error> cannot_tune(const GpuMatch& match, const mdev::VgpuGpu& gpu, const vfio::UseReport& use);

/// Adds steps for vGPUs that stay and for vGPUs that the plan makes, whose ids are already known.
void add_params(const GpuMatch& match, const mdev::VgpuGpu& gpu, GpuPlan& plan);

/// Writes `text` as it is: a blank removes all parameters.
VgpuStep params_of(const mdev::VgpuGpu& gpu, const mdev::VgpuDevice& device, std::string text,
                   std::string why);

}  // namespace ferry::vgpu
