// SPDX-License-Identifier: Apache-2.0
// Items of a file that have nothing to say on a node: no fault, since one file may be for many nodes, and yet
// what a slip of the pen looks like.
#pragma once

#include <string>
#include <vector>

#include "mdev/vgpu.h"
#include "policy/policy.h"
#include "vgpu-dm/profile.h"

namespace ferry {

/// "policy.yaml:4: matches no GPU of this node", for each item of which that is so.
std::vector<std::string> items_without_gpu(const Policy& policy, const VgpuInventory& inventory,
                                           const ModelNames& models = {});
std::vector<std::string> items_without_gpu(const Profile& profile, const VgpuInventory& inventory);

}  // namespace ferry
