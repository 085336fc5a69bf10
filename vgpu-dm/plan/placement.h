// SPDX-License-Identifier: Apache-2.0
// Puts vGPUs at the placement IDs that a policy asks for. The meaning of an ID depends on driver and type. No
// source tells how much memory a vGPU takes from its placement, so the driver refuses overlaps. The driver
// gives a new vGPU the first free placement; moving it is another write. Each vGPU is moved before the next
// is made: while no two targets overlap, there is room for it in any order.
#pragma once

#include <optional>
#include <vector>

#include "vgpu-dm/plan/gpu_match.h"
#include "vgpu-dm/plan/plan.h"

namespace ferry::vgpu {

/// Error if vGPUs cannot get their placements, as far as known before any removal; std::nullopt: they can.
std::optional<Error> cannot_place(const GpuMatch& match, const mdev::VgpuGpu& gpu,
                                  const vfio::UseReport& use);

/// Adds steps that move vGPUs which stay.
void add_moves(const GpuMatch& match, const mdev::VgpuGpu& gpu, GpuPlan& plan);

/// Sets the placements of the plan's creations. Creations without one come last: the driver might put them
/// where another vGPU belongs.
void place_creations(const GpuMatch& match, GpuPlan& plan);

/// Orders moves so that no vGPU that moves later is still at the target. Moves that exchange placements stay
/// in `moves`: no other placement is certain to be free.
std::vector<VgpuMove> in_order(std::vector<VgpuMove>& moves);

VgpuStep move_of(const mdev::VgpuGpu& gpu, const VgpuMove& move, std::string why);

}  // namespace ferry::vgpu
