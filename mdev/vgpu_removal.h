// SPDX-License-Identifier: Apache-2.0
// Messages about vGPUs that block a change, with the command that removes them.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "mdev/vgpu.h"

namespace ferry {

/// True if Ferry is seen to have made the vGPU (is_ours() of vgpu-dm decides). An empty function: no vGPU is
/// known to be Ferry's.
using MadeByFerry = std::function<bool(const VgpuDevice&)>;

/// The command that removes a GPU's vGPUs: "ferry vgpu delete --device 0000:17:00.0", with --foreign if Ferry
/// did not make all of them.
std::string removal_command(const VgpuGpu& gpu, const MadeByFerry& ours);

/// carriers_of_vgpus() of vgpu_inventory.h, with a removal_command() that depends on `ours`. The overload
/// there counts every vGPU as foreign.
std::map<PciAddress, std::string> carriers_of_vgpus(const VgpuInventory& inventory, const MadeByFerry& ours);

}  // namespace ferry
