// SPDX-License-Identifier: Apache-2.0
#include "policy/idle_items.h"

#include <algorithm>

namespace ferry::policy {
namespace {

constexpr const char* kIdle = ": matches no GPU of this node";

}  // namespace

std::vector<std::string> items_without_gpu(const Policy& policy, const mdev::VgpuInventory& inventory,
                                           const ModelNames& models) {
  std::vector<std::string> out;
  for (const PolicyItem& item : policy.items) {
    const auto matches = [&](const mdev::VgpuGpu& gpu) { return item.matches(gpu, models); };
    if (std::ranges::none_of(inventory.gpus, matches)) out.push_back(item.gpus.place + kIdle);
  }
  return out;
}

std::vector<std::string> items_without_gpu(const vgpu::Profile& profile,
                                           const mdev::VgpuInventory& inventory) {
  std::vector<std::string> out;
  for (const vgpu::ProfileItem& item : profile.items) {
    const auto matches = [&](const mdev::VgpuGpu& gpu) { return item.matches(gpu); };
    if (std::ranges::none_of(inventory.gpus, matches)) out.push_back(item.place + kIdle);
  }
  return out;
}

}  // namespace ferry::policy
