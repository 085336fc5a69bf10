// SPDX-License-Identifier: Apache-2.0
#include "vgpu-dm/plan/instance_fit.h"

#include <algorithm>
#include <bitset>
#include <vector>

namespace ferry::vgpu {
namespace {

constexpr std::size_t kMostSlices = 64;  // eight on every GPU so far
using Slices = std::bitset<kMostSlices>;

Slices slices_from(std::uint32_t start, std::uint32_t size) {
  Slices out;
  for (std::uint32_t slice = start; slice < std::min<std::size_t>(start + size, kMostSlices); ++slice)
    out.set(slice);
  return out;
}

struct Kind {
  const mdev::GpuInstanceProfile* profile = nullptr;
  std::uint32_t count = 0;
};

/// Tries every arrangement: there are few kinds, and few places for each.
bool place_all(std::span<const Kind> kinds, std::uint32_t placed, std::size_t first, const Slices& taken) {
  if (kinds.empty()) return true;
  if (placed == kinds.front().count) return place_all(kinds.subspan(1), 0, 0, taken);
  const mdev::GpuInstanceProfile& profile = *kinds.front().profile;
  for (std::size_t i = first; i < profile.starts.size(); ++i) {
    const Slices here = slices_from(profile.starts[i], profile.size);
    if ((taken & here).any()) continue;
    if (place_all(kinds, placed + 1, i + 1, taken | here)) return true;
  }
  return false;
}

const mdev::GpuInstanceProfile* profile_of(const mdev::ManagedGpu& gpu, const mdev::GpuInstance& instance) {
  const auto found = std::ranges::find(gpu.profiles, instance.profile, &mdev::GpuInstanceProfile::id);
  return found == gpu.profiles.end() ? nullptr : &*found;
}

}  // namespace

bool fit_together(const mdev::ManagedGpu& gpu, const InstanceCounts& wanted,
                  std::span<const mdev::GpuInstance> staying) {
  std::uint32_t all = 0;  // compute slices
  for (const mdev::GpuInstanceProfile& profile : gpu.profiles) all = std::max(all, profile.slices);
  std::uint32_t used = 0;
  Slices taken;
  for (const mdev::GpuInstance& instance : staying) {
    const mdev::GpuInstanceProfile* profile = profile_of(gpu, instance);
    if (profile == nullptr) continue;
    used += profile->slices;
    if (instance.start) taken |= slices_from(*instance.start, profile->size);
  }
  std::vector<Kind> kinds;
  for (const auto& [profile, count] : wanted) {
    used += profile->slices * count;
    // A profile without known places is taken to fit.
    if (count > 0 && !profile->starts.empty()) kinds.push_back({.profile = profile, .count = count});
  }
  if (all > 0 && used > all) return false;
  std::ranges::sort(kinds, std::ranges::greater(), [](const Kind& kind) { return kind.profile->size; });
  return place_all(kinds, 0, 0, taken);
}

}  // namespace ferry::vgpu
