// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <bitset>
#include <cstdint>
#include <iterator>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/text/text.h"
#include "mdev/gpu_management.h"
#include "vgpu-dm/plan/gpu_preparation.h"

namespace ferry::vgpu {
namespace {

// Decides if GPU instances of several profiles fit on one GPU. For a single profile the driver tells the
// number left (GpuInstanceProfile::left); for several it tells only where each may begin.

using InstanceCounts = std::map<const mdev::GpuInstanceProfile*, std::uint32_t>;

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

const mdev::GpuInstanceProfile* profile_by_id(const mdev::ManagedGpu& gpu, std::uint32_t id) {
  const auto found = std::ranges::find(gpu.profiles, id, &mdev::GpuInstanceProfile::id);
  return found == gpu.profiles.end() ? nullptr : &*found;
}

/// True if `desired` fits on a GPU beside `staying`, which keep their places. Counts compute slices, and the
/// memory slices that each instance takes from its start. Also true if the driver reports too little to say
/// no. The profiles are the GPU's own.
bool fit_together(const mdev::ManagedGpu& gpu, const InstanceCounts& desired,
                  std::span<const mdev::GpuInstance> staying) {
  std::uint32_t all = 0;  // compute slices
  for (const mdev::GpuInstanceProfile& profile : gpu.profiles) all = std::max(all, profile.slices);
  std::uint32_t used = 0;
  Slices taken;
  for (const mdev::GpuInstance& instance : staying) {
    const mdev::GpuInstanceProfile* profile = profile_by_id(gpu, instance.profile);
    if (profile == nullptr) continue;
    used += profile->slices;
    if (instance.start) taken |= slices_from(*instance.start, profile->size);
  }
  std::vector<Kind> kinds;
  for (const auto& [profile, count] : desired) {
    used += profile->slices * count;
    // A profile without known places is taken to fit.
    if (count > 0 && !profile->starts.empty()) kinds.push_back({.profile = profile, .count = count});
  }
  if (all > 0 && used > all) return false;
  std::ranges::sort(kinds, std::ranges::greater(), [](const Kind& kind) { return kind.profile->size; });
  return place_all(kinds, 0, 0, taken);
}

/// The demand of a single vGPU of a type.
struct Need {
  const mdev::GpuInstanceProfile* profile = nullptr;
  std::uint32_t per_instance = 1;
  std::uint64_t size = 0;  ///< vGPUs of one size share instances
};

// The driver's answer comes first; the table's is used if the driver does not know the type.
std::optional<Need> need_of(const VgpuTypeName& name, const mdev::ManagedGpu& gpu, const BoardTypes& board) {
  const mdev::ManagedType* listed = nullptr;
  for (const std::string& text : {name.text(), name.driver_short_name()}) {
    if (listed != nullptr) break;  // the exact name counts more than the driver's short one
    const auto found = std::ranges::find(
        gpu.types, text, [](const mdev::ManagedType& type) { return mdev::last_word(type.name); });
    if (found != gpu.types.end()) listed = &*found;
  }
  if (listed != nullptr && listed->instance_profile) {
    const mdev::GpuInstanceProfile* profile = profile_by_id(gpu, *listed->instance_profile);
    if (profile == nullptr) return std::nullopt;
    return Need{.profile = profile,
                .per_instance = std::max(listed->most_per_instance.value_or(1), 1U),
                .size = listed->framebuffer};
  }
  const mdev::VgpuType* known = board.find(name.text());
  if (known == nullptr) known = board.find(name.driver_short_name());
  if (known == nullptr || known->mig_profile.empty()) return std::nullopt;
  const auto profile = std::ranges::find(gpu.profiles, known->mig_profile, &mdev::GpuInstanceProfile::name);
  if (profile == gpu.profiles.end()) return std::nullopt;
  return Need{.profile = &*profile,
              .per_instance = std::max(known->max_per_instance.value_or(1), 1U),
              .size = known->framebuffer_mib.value_or(0)};
}

Error unknown_type(std::string_view label, const VgpuCount& entry, const mdev::ManagedGpu& gpu) {
  std::string names;
  for (const mdev::GpuInstanceProfile& profile : gpu.profiles)
    names += (names.empty() ? "" : ", ") + profile.name;
  return {.code = Errc::unsupported,
          .message = fmt::format("{}: {}: no GPU instance of this GPU is known to carry {}", entry.place,
                                 label, entry.type.text()),
          .hint = names.empty() ? "this GPU has no GPU instances (MIG)" : "its GPU instances: " + names};
}

/// "; GPU instance 1 keeps vGPU 0000:17:00.4", or nothing.
std::string staying_note(std::span<const Want> wants) {
  std::map<std::uint32_t, std::vector<std::string_view>> by_instance;
  for (const Want& want : wants) {
    for (const mdev::VgpuDevice* device : want.kept)
      if (const auto instance = device->gpu_instance) by_instance[*instance].emplace_back(device->id.text);
  }
  std::string out;
  for (const auto& [instance, ids] : by_instance) {
    out += fmt::format("{} GPU instance {} keeps {} {}", out.empty() ? ";" : ",", instance,
                       ids.size() == 1 ? "vGPU" : "vGPUs", fmt::join(ids, " and "));
  }
  return out;
}

std::string hint_for_capacity(std::span<const Want> wants) {
  return staying_note(wants).empty()
             ? "ask for fewer, or for smaller ones"
             : "ask for fewer, or for smaller ones; a vGPU that stays keeps its GPU instance for its own "
               "size: `ferry vgpu delete` removes those that are not in use";
}

/// `askers`: all entries that need instances of this profile.
Error no_capacity(std::string_view label, const std::vector<const Want*>& askers, std::span<const Want> wants,
                  const mdev::GpuInstanceProfile& profile, std::uint32_t needed) {
  std::vector<std::string> asked;
  asked.reserve(askers.size());
  for (const Want* want : askers)
    asked.push_back(fmt::format("{} x {}", want->entry->count, want->entry->type.text()));
  return {.code = Errc::invalid_config,
          .message = fmt::format("{}: {}: {} need {} {}, and {} fit{}", askers.front()->entry->place, label,
                                 fmt::join(asked, ", "), counted(needed, "GPU instance"), profile.name,
                                 profile.most, staying_note(wants)),
          .hint = hint_for_capacity(wants)};
}

/// The needed GPU instances, and the entries that need them, by profile.
struct Demand {
  InstanceCounts needed;
  std::map<const mdev::GpuInstanceProfile*, std::vector<const Want*>> askers;
};

/// Counts the needed GPU instances. vGPUs of one size fill instances together, whatever their series. vGPUs
/// that stay keep their instance, and leave its free room to their own size.
Demand demand_of(const mdev::ManagedGpu& gpu, std::span<const std::pair<const Want*, Need>> needs) {
  Demand out;
  std::set<std::uint32_t> hosts;
  std::map<const Want*, std::uint32_t> settled;
  std::map<std::pair<const mdev::GpuInstanceProfile*, std::uint64_t>, std::uint32_t> capacity;
  // First the vGPUs of all entries that stay: vGPUs of one entry may find room beside those of another.
  for (const auto& [want, need] : needs) {
    for (const mdev::VgpuDevice* device : want->kept) {
      if (!device->gpu_instance) continue;
      const auto instance = std::ranges::find(gpu.instances, *device->gpu_instance, &mdev::GpuInstance::id);
      if (instance == gpu.instances.end()) continue;
      const mdev::GpuInstanceProfile* profile = profile_by_id(gpu, instance->profile);
      if (profile == nullptr) continue;
      std::uint32_t& left = capacity[{profile, need.size}];
      if (hosts.insert(instance->id).second) {
        ++out.needed[profile];
        left += need.per_instance;
      }
      left -= std::min(left, 1U);
      ++settled[want];
    }
  }

  for (const auto& [want, need] : needs) {
    const std::uint32_t count = want->entry->count;
    const std::uint32_t missing = count - std::min(count, settled[want]);
    std::uint32_t& left = capacity[{need.profile, need.size}];
    const std::uint32_t more = missing - std::min(missing, left);
    const std::uint32_t instances = (more + need.per_instance - 1) / need.per_instance;
    left += instances * need.per_instance - missing;
    out.needed[need.profile] += instances;
    out.askers[need.profile].push_back(want);
  }
  return out;
}

InstanceCounts existing(const mdev::ManagedGpu& gpu) {
  InstanceCounts out;
  for (const mdev::GpuInstance& instance : gpu.instances) {
    if (const auto* profile = profile_by_id(gpu, instance.profile)) ++out[profile];
  }
  return out;
}

/// True if all needed instances fit together; instances with vGPUs that stay count at their places.
bool all_fit(const mdev::ManagedGpu& gpu, const InstanceCounts& needed, const std::set<std::uint32_t>& busy) {
  InstanceCounts free_to_place = needed;
  std::vector<mdev::GpuInstance> staying;
  for (const mdev::GpuInstance& instance : gpu.instances) {
    if (!busy.contains(instance.id)) continue;
    staying.push_back(instance);
    const auto one = free_to_place.find(profile_by_id(gpu, instance.profile));
    if (one != free_to_place.end() && one->second > 0) --one->second;
  }
  return fit_together(gpu, free_to_place, staying);
}

Error no_capacity_together(std::string_view label, std::span<const Want> wants,
                           const InstanceCounts& needed) {
  std::vector<std::pair<const mdev::GpuInstanceProfile*, std::uint32_t>> kinds(needed.begin(), needed.end());
  std::ranges::sort(kinds, {}, [](const auto& kind) { return kind.first->id; });
  std::vector<std::string> parts;
  parts.reserve(kinds.size());
  for (const auto& [profile, count] : kinds) parts.push_back(fmt::format("{} x {}", count, profile->name));
  return {
      .code = Errc::invalid_config,
      .message = fmt::format("{}: {}: the GPU instances that its vGPUs need do not fit together: {}{}",
                             wants.front().entry->place, label, fmt::join(parts, ", "), staying_note(wants)),
      .hint = hint_for_capacity(wants)};
}

/// The instances of `idle` that `chosen` has a bit for.
std::vector<mdev::GpuInstance> pick(const std::vector<mdev::GpuInstance>& idle, std::size_t chosen) {
  std::vector<mdev::GpuInstance> out;
  for (std::size_t i = 0; i < idle.size(); ++i) {
    if ((chosen >> i & 1U) != 0) out.push_back(idle[i]);
  }
  return out;
}

// Picks as few needed idle instances as possible to give way if `missing` does not fit beside all of `left`:
// an instance begins only at certain places. Picked instances are made anew elsewhere.
std::vector<mdev::GpuInstance> giving_way(const mdev::ManagedGpu& gpu, const InstanceCounts& missing,
                                          const std::vector<mdev::GpuInstance>& left,
                                          const std::set<std::uint32_t>& busy) {
  constexpr std::size_t kMostTried = 16;  // seven on every GPU so far
  std::vector<mdev::GpuInstance> idle;
  std::ranges::copy_if(left, std::back_inserter(idle),
                       [&](const mdev::GpuInstance& instance) { return !busy.contains(instance.id); });
  // A divided instance is picked last: it cannot be restored as it is, so its removal is refused.
  std::ranges::stable_sort(idle, {}, &mdev::GpuInstance::divided);
  if (idle.size() > kMostTried) return idle;
  const auto frees_capacity = [&](std::size_t chosen) {
    InstanceCounts to_make = missing;
    std::vector<mdev::GpuInstance> staying = left;
    for (const mdev::GpuInstance& instance : pick(idle, chosen)) {
      std::erase(staying, instance);
      if (const auto* profile = profile_by_id(gpu, instance.profile)) ++to_make[profile];
    }
    return fit_together(gpu, to_make, staying);
  };
  for (std::size_t count = 0; count <= idle.size(); ++count) {
    for (std::size_t chosen = 0; chosen < std::size_t{1} << idle.size(); ++chosen) {
      if (static_cast<std::size_t>(std::popcount(chosen)) == count && frees_capacity(chosen))
        return pick(idle, chosen);
    }
  }
  return {};  // all_fit() has excluded this
}

/// `steps` make missing instances; adds in front the removals that these need.
void free_capacity(const mdev::ManagedGpu& gpu, const InstanceCounts& needed,
                   const std::set<std::uint32_t>& busy, std::vector<VgpuStep>& steps) {
  InstanceCounts surplus = existing(gpu);
  for (auto& [profile, count] : surplus) {
    const auto need = needed.find(profile);
    count -= std::min(count, need == needed.end() ? 0 : need->second);
  }
  // The youngest go first. Busy instances are counted as needed before others.
  std::vector<VgpuStep> first;
  for (auto instance = gpu.instances.rbegin(); instance != gpu.instances.rend(); ++instance) {
    const auto* profile = profile_by_id(gpu, instance->profile);
    if (profile == nullptr || busy.contains(instance->id) || surplus[profile] == 0) continue;
    --surplus[profile];
    first.push_back({.kind = VgpuStep::Kind::remove_instance,
                     .number = instance->id,
                     .short_name = profile->name,
                     .why = "it carries nothing and leaves no room for those that are needed"});
  }

  std::vector<mdev::GpuInstance> left = gpu.instances;
  for (const VgpuStep& step : first)
    std::erase_if(left, [&](const mdev::GpuInstance& instance) { return instance.id == step.number; });
  InstanceCounts missing;
  for (const VgpuStep& step : steps) ++missing[profile_by_id(gpu, step.number)];
  for (const mdev::GpuInstance& instance : giving_way(gpu, missing, left, busy)) {
    const auto* profile = profile_by_id(gpu, instance.profile);
    if (profile == nullptr) continue;
    first.push_back({.kind = VgpuStep::Kind::remove_instance,
                     .number = instance.id,
                     .short_name = profile->name,
                     .why = "it carries nothing and is where another one has to be: it is made anew"});
    steps.push_back({.kind = VgpuStep::Kind::make_instance,
                     .number = profile->id,
                     .short_name = profile->name,
                     .why = "the one before is where another one has to be"});
  }
  // The lower a profile's id, the larger it is. Large instances find no place between small ones.
  std::ranges::stable_sort(steps, {}, &VgpuStep::number);
  steps.insert(steps.begin(), first.begin(), first.end());
}

}  // namespace

Preparation plan_instances(const mdev::VgpuGpu& on, std::span<const Want> wants, const mdev::ManagedGpu& gpu,
                           const std::set<std::uint32_t>& busy) {
  const std::string label = on.label();
  const BoardTypes board(on.function);
  Preparation plan;
  std::vector<std::pair<const Want*, Need>> needs;
  for (const Want& want : wants) {
    const auto need = need_of(want.entry->type, gpu, board);
    if (!need) {
      plan.refusal = unknown_type(label, *want.entry, gpu);
      return plan;
    }
    needs.emplace_back(&want, *need);
  }
  Demand demand = demand_of(gpu, needs);
  const InstanceCounts& needed = demand.needed;

  InstanceCounts there = existing(gpu);
  std::size_t kinds = 0;
  bool fits = true;
  for (const auto& [profile, count] : needed) {
    const std::uint32_t missing = count - std::min(count, there[profile]);
    if (missing == 0) continue;
    const auto& askers = demand.askers[profile];
    if (count > profile->most) {
      plan.refusal = no_capacity(label, askers, wants, *profile, count);
      break;
    }
    ++kinds;
    fits = fits && missing <= profile->left;
    for (std::uint32_t i = 0; i < missing; ++i) {
      plan.steps.push_back({.kind = VgpuStep::Kind::make_instance,
                            .number = profile->id,
                            .short_name = profile->name,
                            .why = fmt::format("{} asks for {}", askers.front()->entry->place,
                                               askers.front()->entry->type.text())});
    }
  }
  if (!plan.refusal && !plan.steps.empty() && !all_fit(gpu, needed, busy)) {
    plan.refusal = no_capacity_together(label, wants, needed);
    plan.steps.clear();
  }
  // The driver tells how many of one kind are left, but not if several kinds fit together.
  if (!plan.refusal && (!fits || kinds > 1)) free_capacity(gpu, needed, busy, plan.steps);
  for (VgpuStep& step : plan.steps) {
    step.framework = on.framework;
    step.parent = on.address();
  }
  return plan;
}

}  // namespace ferry::vgpu
