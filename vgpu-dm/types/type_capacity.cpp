// SPDX-License-Identifier: Apache-2.0
#include "vgpu-dm/types/type_capacity.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "common/text/text.h"
#include "mdev/framework.h"
#include "vgpu-dm/types/type_names.h"

namespace ferry::vgpu {
namespace {

/// Types that share memory in one way: of one board, time-sliced (0) or on GPU instances of so many slices,
/// and on those with media engines.
using Kind = std::tuple<std::string, std::uint32_t, bool>;

/// Absent: the name or the size of the type is not known.
std::optional<Kind> kind_of(const mdev::VgpuType& type) {
  if (type.framebuffer_mib.value_or(0) == 0) return std::nullopt;
  auto name = VgpuTypeName::of_driver(type.short_name);
  if (!name) return std::nullopt;
  return Kind(std::move(name->board), name->slices.value_or(0), name->attribute == "ME");
}

constexpr std::uint32_t kMemorySlices = 8;  // of every GPU so far

/// "2g.48gb+gfx" is an instance with 2 slices and 48 GiB. The largest profile has the whole GPU, and a
/// profile has whole memory slices, which its name rounds.
template <typename Types>
std::vector<mdev::GpuInstanceProfile> profiles_of(const Types& types) {
  std::map<std::string, std::uint32_t> gib_of;
  for (const mdev::VgpuType* type : types) {
    const std::string& name = type->mig_profile;
    if (!name.empty())
      gib_of.emplace(name, number_at_start(std::string_view(name).substr(name.find('.') + 1)).value_or(1));
  }
  std::uint32_t most_gib = 1;
  std::uint32_t most_slices = 1;
  for (const auto& [name, gib] : gib_of) {
    most_gib = std::max(most_gib, gib);
    most_slices = std::max(most_slices, number_at_start(name).value_or(1));
  }
  std::vector<mdev::GpuInstanceProfile> out;
  for (const auto& [name, gib] : gib_of) {
    mdev::GpuInstanceProfile& profile = out.emplace_back(
        mdev::GpuInstanceProfile{.id = static_cast<std::uint32_t>(out.size()), .name = name});
    profile.slices = number_at_start(name).value_or(1);
    profile.size = std::max(1U, (gib * kMemorySlices + most_gib / 2) / most_gib);
    // A GPU has one instance with media engines.
    profile.most =
        name.ends_with("+me") ? 1 : std::min(most_slices / profile.slices, kMemorySlices / profile.size);
    profile.left = profile.most;
    for (std::uint32_t start = 0; start + profile.size <= kMemorySlices; start += profile.size)
      profile.starts.push_back(start);
  }
  return out;
}

std::vector<const mdev::VgpuType*> all_types(const mdev::VgpuGpu& gpu) {
  std::vector<const mdev::VgpuType*> out;
  for (const mdev::VgpuParent& parent : gpu.parents)
    for (const mdev::VgpuType& type : parent.types) out.push_back(&type);
  for (const mdev::VgpuType& type : gpu.unlisted) out.push_back(&type);
  return out;
}

const mdev::GpuInstanceProfile* find(const std::vector<mdev::GpuInstanceProfile>& profiles,
                                     std::string_view name) {
  const auto found = std::ranges::find(profiles, name, &mdev::GpuInstanceProfile::name);
  return found == profiles.end() ? nullptr : &*found;
}

/// The memory that the present vGPUs of a GPU take.
class Taken {
 public:
  explicit Taken(const mdev::VgpuGpu& gpu)
      : memory_(time_sliced_memory(gpu)), profiles_(profiles_of(all_types(gpu))) {
    const TypeIndex types = index_of(gpu);
    for (const mdev::VgpuDevice& device : gpu.devices) {
      const mdev::VgpuType* type = type_of(device, types);
      const auto kind = type != nullptr ? kind_of(*type) : std::nullopt;
      if (kind) ++of_size_[{*kind, *type->framebuffer_mib}];
      if (type == nullptr || !type->max_per_instance) {
        mib_ += type != nullptr ? type->framebuffer_mib.value_or(0) : 0;
        ++vgpus_;
        continue;
      }
      OnInstances& on = on_instances_[{type->mig_profile, type->framebuffer_mib.value_or(0)}];
      on.most_per_instance = *type->max_per_instance;
      ++on.vgpus;
      if (device.gpu_instance) on.instances.insert(*device.gpu_instance);
    }
  }

  /// The number of vGPUs of a type that still fit, by its maximum and by the memory.
  std::uint32_t left_for(const mdev::VgpuType& type, std::uint32_t most) const {
    if (const auto* profile = find(profiles_, type.mig_profile); profile != nullptr && type.max_per_instance)
      return std::min(most, left_on_instances(type, *profile));
    if (const auto kind = kind_of(type); kind && std::get<1>(*kind) > 0) {
      const auto same = of_size_.find({*kind, *type.framebuffer_mib});
      return most - std::min(most, same == of_size_.end() ? 0 : same->second);
    }
    const std::uint32_t left = most - std::min(most, vgpus_);
    const std::uint64_t size = type.framebuffer_mib.value_or(0);
    if (size == 0 || memory_ == 0) return left;
    return static_cast<std::uint32_t>(
        std::min<std::uint64_t>(left, (memory_ - std::min(memory_, mib_)) / size));
  }

 private:
  /// vGPUs of one size on GPU instances of one profile.
  struct OnInstances {
    std::uint32_t vgpus = 0;
    std::uint32_t most_per_instance = 1;
    std::set<std::uint32_t> instances = {};  ///< those that the driver tells
    /// The instances that they take at least.
    std::uint32_t count() const {
      const auto told = static_cast<std::uint32_t>(instances.size());
      return std::max(told, (vgpus + most_per_instance - 1) / most_per_instance);
    }
  };

  std::uint32_t left_on_instances(const mdev::VgpuType& type, const mdev::GpuInstanceProfile& profile) const {
    std::uint32_t slices = 0;  // that are free
    for (const mdev::GpuInstanceProfile& one : profiles_) slices = std::max(slices, one.slices);
    std::uint32_t memory = kMemorySlices;
    std::uint32_t more = profile.most;
    std::uint32_t beside = 0;  // on instances that carry its size
    for (const auto& [of, on] : on_instances_) {
      const mdev::GpuInstanceProfile* other = find(profiles_, of.first);
      slices -= std::min(slices, on.count() * other->slices);
      memory -= std::min(memory, on.count() * other->size);
      if (other != &profile) continue;
      more -= std::min(more, on.count());
      if (of.second == type.framebuffer_mib) beside = on.count() * on.most_per_instance - on.vgpus;
    }
    more = std::min({more, slices / profile.slices, memory / profile.size});
    return beside + more * *type.max_per_instance;
  }

  std::uint64_t memory_;
  std::vector<mdev::GpuInstanceProfile> profiles_;
  std::uint32_t vgpus_ = 0;  ///< those on no known GPU instance
  std::uint64_t mib_ = 0;    ///< of these
  std::map<std::pair<Kind, std::uint32_t>, std::uint32_t> of_size_;
  std::map<std::pair<std::string, std::uint32_t>, OnInstances> on_instances_;
};

}  // namespace

void add_maxima(std::span<mdev::VgpuType* const> types, bool complete, std::uint32_t most) {
  const auto profiles = profiles_of(types);
  std::map<Kind, std::map<std::uint32_t, std::uint32_t>> maxima;  // by size; 0: not known
  for (mdev::VgpuType* type : types) {
    const auto* profile = find(profiles, type->mig_profile);
    if (!type->max_instances && profile != nullptr && type->max_per_instance)
      type->max_instances = profile->most * *type->max_per_instance;
    const auto kind = kind_of(*type);
    if (!kind) continue;
    std::uint32_t& known = maxima[*kind][*type->framebuffer_mib];
    known = std::max(known, type->max_instances.value_or(0));
  }
  for (mdev::VgpuType* type : types) {
    if (type->max_instances) type->max_instances = std::min(*type->max_instances, most);
    const auto kind = type->max_instances ? std::nullopt : kind_of(*type);
    if (!kind) continue;
    const auto& by_size = maxima.at(*kind);
    const std::uint32_t same_size = by_size.at(*type->framebuffer_mib);
    const auto& [largest, known] = *by_size.rbegin();
    const bool is_whole_gpu = complete && std::get<1>(*kind) == 0;
    const std::uint32_t of_largest = known == 0 && is_whole_gpu ? 1 : known;
    const std::uint32_t bound = same_size > 0 ? same_size : largest / *type->framebuffer_mib * of_largest;
    if (bound > 0) type->max_instances = std::min(bound, most);
  }
}

std::vector<mdev::VgpuType> types_of(const mdev::VgpuGpu& gpu) {
  std::vector<mdev::VgpuType> out;
  std::unordered_map<std::string_view, std::size_t> places;
  for (const mdev::VgpuParent& parent : gpu.parents) {
    for (const mdev::VgpuType& type : parent.types) {
      const auto [place, fresh] = places.try_emplace(type.id, out.size());
      if (fresh) {
        out.push_back(type);
      } else {
        out[place->second].available += type.available;
      }
    }
  }
  if (gpu.on_itself() || out.empty()) return out;  // the driver counts for the whole GPU
  const Taken taken(gpu);
  for (mdev::VgpuType& type : out) {
    if (const auto most = type.max_instances) {
      type.available = std::min(type.available, taken.left_for(type, *most));
    } else {
      type.available = std::min(type.available, most_by_slices(gpu, type));
      type.fewer_may_fit = type.available > 1;
    }
  }
  return out;
}

std::uint32_t most_by_slices(const mdev::VgpuGpu& gpu, const mdev::VgpuType& type) {
  constexpr std::uint32_t kSlices = 7;
  constexpr auto kNoBound = std::numeric_limits<std::uint32_t>::max();
  const auto kind = kind_of(type);
  const bool lists_all = gpu.devices.empty() || !gpu.framework->lists_only_creatable_types();
  const auto lists_it = [&](const mdev::VgpuParent& parent) { return parent.find(type.id) != nullptr; };
  const auto parent = std::ranges::find_if(gpu.parents, lists_it);
  if (!kind || !lists_all || parent == gpu.parents.end()) return kNoBound;
  const std::uint32_t slices = std::get<1>(*kind);
  if (slices == 0) return kNoBound;

  std::uint32_t largest = 0;
  for (const mdev::VgpuType& other : parent->types)
    if (kind_of(other) == kind) largest = std::max(largest, *other.framebuffer_mib);
  // A GPU has one instance with media engines.
  const std::uint32_t instances = std::get<2>(*kind) ? 1 : std::max(1U, kSlices / slices);
  return largest / *type.framebuffer_mib * instances;
}

std::uint64_t time_sliced_memory(const mdev::VgpuGpu& gpu) {
  std::uint64_t most = 0;
  for (const mdev::VgpuType* type : all_types(gpu)) {
    const std::uint64_t takes =
        std::uint64_t{type->framebuffer_mib.value_or(0)} * type->max_instances.value_or(0);
    if (takes > most && !is_mig_backed(*type)) most = takes;
  }
  return most;
}

bool has_instances(const mdev::VgpuGpu& gpu) {
  if (std::ranges::any_of(gpu.devices, [](const auto& device) { return is_mig_backed(device); })) return true;
  std::vector<mdev::VgpuType> types = types_of(gpu);
  std::erase_if(types, [](const mdev::VgpuType& type) { return type.available == 0; });
  return !types.empty() &&
         std::ranges::all_of(types, [](const mdev::VgpuType& type) { return is_mig_backed(type); });
}

mdev::ManagedGpu instances_by_types(const mdev::VgpuGpu& gpu) {
  return {.vgpu_host = true, .mig = mdev::GpuSwitch::on, .profiles = profiles_of(all_types(gpu))};
}

TypeIndex index_of(const mdev::VgpuGpu& gpu) {
  TypeIndex out;
  for (const mdev::VgpuType* type : all_types(gpu)) {
    out.emplace(type->name, type);
    if (!type->id.empty()) out.emplace(type->id, type);
  }
  return out;
}

const mdev::VgpuType* type_of(const mdev::VgpuDevice& device, const TypeIndex& types) {
  auto found = types.find(device.type_name);
  if (found == types.end()) found = types.find(device.type_id);
  return found == types.end() ? nullptr : found->second;
}

}  // namespace ferry::vgpu
