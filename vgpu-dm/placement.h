// SPDX-License-Identifier: Apache-2.0
// Inside this room: vGPUs at the places in a GPU's memory that a policy asks for. A place is a number whose
// meaning is the driver's, and depends on the type: how much of the memory a vGPU takes from there on nobody
// tells, so that what overlaps is the driver's to refuse.
// The driver gives a new vGPU the first free place; moving it is another write. Each is moved before the next
// is made: as long as no two shall have the same memory, there is room for it then, whatever the order.
#pragma once

#include <optional>
#include <vector>

#include "vgpu-dm/gpu_match.h"
#include "vgpu-dm/plan.h"

namespace ferry {

/// Why vGPUs cannot be put where they shall be, as far as that is known before anything is removed; nothing
/// when they can.
std::optional<Error> cannot_place(const GpuMatch& match, const VgpuGpu& gpu, const UseReport& use);

/// Adds the moves of what stays.
void add_moves(const GpuMatch& match, const VgpuGpu& gpu, GpuPlan& plan);

/// Gives what the plan's steps make its places. Those without one come last: the driver might put them where
/// another shall be.
void place_creations(const GpuMatch& match, GpuPlan& plan);

/// One after the other, each to a place that none of those behind it still has. Those that would have to
/// change places with one another stay in `moves`: nowhere else is certain to be free.
std::vector<VgpuMove> in_order(std::vector<VgpuMove>& moves);

VgpuStep move_of(const VgpuGpu& gpu, const VgpuMove& move, std::string why);

}  // namespace ferry
