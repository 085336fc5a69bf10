// SPDX-License-Identifier: Apache-2.0
// Finds items of a file that match no GPU of a node. They are no error, since a file may be for many nodes,
// but they may be a typing mistake.
#pragma once

#include <string>
#include <vector>

#include "mdev/vgpu.h"
#include "policy/policy.h"
#include "vgpu-dm/profile/profile.h"

namespace ferry::policy {

/// "policy.yaml:4: matches no GPU of this node", for each such item.
std::vector<std::string> items_without_gpu(const Policy& policy, const mdev::VgpuInventory& inventory,
                                           const ModelNames& models = {});
std::vector<std::string> items_without_gpu(const vgpu::Profile& profile,
                                           const mdev::VgpuInventory& inventory);

}  // namespace ferry::policy
