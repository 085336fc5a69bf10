// SPDX-License-Identifier: Apache-2.0
// What is told of vGPUs that stand in the way: the command that takes them away.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "mdev/vgpu.h"

namespace ferry {

/// Whether Ferry made a vGPU, as far as that shows (is_ours() of vgpu-dm knows). An empty one: none is known
/// to be.
using MadeByFerry = std::function<bool(const VgpuDevice&)>;

/// What takes a GPU's vGPUs away: "ferry vgpu delete --device 0000:17:00.0", with --foreign where one of them
/// is not `ours`.
std::string removal_command(const VgpuGpu& gpu, const MadeByFerry& ours);

/// carriers_of_vgpus() of vgpu_inventory.h, with the removal_command() by whose the vGPUs are. (That one
/// takes none for Ferry's.)
std::map<PciAddress, std::string> carriers_of_vgpus(const VgpuInventory& inventory, const MadeByFerry& ours);

}  // namespace ferry
