// SPDX-License-Identifier: Apache-2.0
// Virtual functions that each type's vGPUs get on an empty GPU. The layout depends on the item alone, not on
// the order of its keys or on existing vGPUs: a vGPU's UUID is made from its function.
#pragma once

#include <map>
#include <vector>

#include "mdev/vgpu.h"
#include "vgpu-dm/profile/profile.h"

namespace ferry::vgpu {

/// Types in order of their names get the lowest functions. A type gets fewer than its count if functions run
/// out, and none if vGPUs are made on the GPU itself. The keys point into the item.
std::map<const VgpuCount*, std::vector<vfio::PciAddress>> functions_for(const ProfileItem& item,
                                                                        const mdev::VgpuGpu& gpu);

}  // namespace ferry::vgpu
