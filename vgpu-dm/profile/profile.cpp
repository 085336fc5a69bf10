// SPDX-License-Identifier: Apache-2.0
#include "vgpu-dm/profile/profile.h"

#include <algorithm>

namespace ferry::vgpu {

bool ProfileItem::matches(const mdev::VgpuGpu& gpu) const {
  if (only) return gpu.address() == *only;
  const bool chosen =
      all_devices || std::find(indices.begin(), indices.end(), std::int64_t{gpu.index}) != indices.end();
  return chosen && (filters.empty() ||
                    std::any_of(filters.begin(), filters.end(),
                                [&](const DeviceFilter& filter) { return filter.matches(gpu.function); }));
}

const ProfileItem* Profile::item_for(const mdev::VgpuGpu& gpu) const {
  const auto last =
      std::find_if(items.rbegin(), items.rend(), [&](const ProfileItem& item) { return item.matches(gpu); });
  return last == items.rend() ? nullptr : &*last;
}

std::vector<std::string> ProfileFile::names() const {
  std::vector<std::string> out;
  out.reserve(profiles.size());
  for (const Profile& profile : profiles) out.push_back(profile.name);
  return out;
}

}  // namespace ferry::vgpu
