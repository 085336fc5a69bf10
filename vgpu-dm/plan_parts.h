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

/// Why nothing of a vGPU that stays may be changed: `what` ("p.yaml:7: GPU 0 (...): ... cannot be set") and
/// its users; nothing when it may.
std::optional<Error> cannot_change(const VgpuDevice& device, const std::string& what, const UseReport& use);

/// Why nothing may be written to a GPU: a write that has not returned, or what could not be read.
std::optional<Error> cannot_write(const VgpuGpu& gpu, const VgpuView& view);

/// What a look at the node as a whole has found beside its GPUs.
std::vector<std::string> use_notes(const VgpuView& view);

}  // namespace ferry
