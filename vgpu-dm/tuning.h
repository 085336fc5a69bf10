// SPDX-License-Identifier: Apache-2.0
// Inside this room: what can be set on a vGPU that is there, without making it anew.
#pragma once

#include <optional>
#include <string>

#include "vgpu-dm/gpu_match.h"
#include "vgpu-dm/plan.h"

namespace ferry {

/// Why the parameters of what stays cannot be set; nothing when they can.
std::optional<Error> cannot_tune(const GpuMatch& match, const VgpuGpu& gpu, const UseReport& use);

/// Adds the parameters of what stays, and of what the plan's steps make: its id is known by then.
void add_params(const GpuMatch& match, const VgpuGpu& gpu, GpuPlan& plan);

/// `text` as it is written: a blank takes all parameters away.
VgpuStep params_of(const VgpuGpu& gpu, const VgpuDevice& device, std::string text, std::string why);

}  // namespace ferry
