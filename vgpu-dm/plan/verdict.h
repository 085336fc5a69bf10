// SPDX-License-Identifier: Apache-2.0
// Compares a host with a profile.
#pragma once

#include <vector>

#include "common/result.h"
#include "mdev/vgpu_inventory.h"
#include "vgpu-dm/plan/plan.h"
#include "vgpu-dm/profile/profile.h"

namespace ferry::vgpu {

struct GpuVerdict {
  unsigned index = 0;
  vfio::PciAddress gpu;
  bool agrees = false;
  std::vector<TypeCount> wanted = {};
  std::vector<TypeCount> found = {};
  std::string difference =
      {};  ///< "GPU 0 (0000:17:00.0): wanted 4 x T4-4Q, found none"; empty when it agrees
};

/// Gives a verdict for each GPU of the node, in order of index. A GPU that no item matches does not agree, as
/// under NVIDIA's program: a profile that passes describes the whole node. (An item with `devices: all` and
/// `vgpu-devices: {}` in front covers the other GPUs.)
std::vector<GpuVerdict> judge(const Profile& profile, const mdev::VgpuInventory& inventory);

/// Errc::differs with every difference, or success; a node without GPUs agrees.
Result<> assert_profile(const Profile& profile, const mdev::VgpuInventory& inventory);

}  // namespace ferry::vgpu
