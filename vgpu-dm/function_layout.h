// SPDX-License-Identifier: Apache-2.0
// Inside this room: which virtual functions each type's vGPUs have on an empty GPU. It depends on what is
// asked for alone, not on the order of the keys nor on what was there before: a vGPU's UUID is made from its
// function.
#pragma once

#include <map>
#include <vector>

#include "mdev/vgpu.h"
#include "vgpu-dm/profile.h"

namespace ferry {

/// The lowest functions for the type whose name is first, the next ones for the next. Fewer than asked for
/// where there are too few; none where vGPUs are made on the GPU itself. The keys point into the item.
std::map<const VgpuCount*, std::vector<PciAddress>> functions_for(const ProfileItem& item,
                                                                  const VgpuGpu& gpu);

}  // namespace ferry
