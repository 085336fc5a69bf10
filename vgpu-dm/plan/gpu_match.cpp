// SPDX-License-Identifier: Apache-2.0
#include "vgpu-dm/plan/gpu_match.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <tuple>

#include <fmt/format.h>

#include "mdev/framework.h"
#include "vgpu-dm/plan/stable_uuid.h"

namespace ferry::vgpu {
namespace {

// Virtual functions that each type's vGPUs get on an empty GPU. The layout depends on the item alone, not on
// the order of its keys or on existing vGPUs: a vGPU's UUID is made from its function.

/// Types in order of their names get the lowest functions. A type gets fewer than its count if functions run
/// out, and none if vGPUs are made on the GPU itself. The keys point into the item.
std::map<const VgpuCount*, std::vector<vfio::PciAddress>> functions_for(const ProfileItem& item,
                                                                        const mdev::VgpuGpu& gpu) {
  std::map<const VgpuCount*, std::vector<vfio::PciAddress>> out;
  if (!gpu.on_virtual_functions()) return out;
  std::map<std::string, const VgpuCount*> by_name;
  for (const VgpuCount& entry : item.vgpus) by_name.emplace(entry.type.text(), &entry);
  auto next = gpu.parents.begin();
  for (const auto& [name, entry] : by_name) {
    for (std::uint32_t i = 0; i < entry->count && next != gpu.parents.end(); ++i, ++next)
      out[entry].push_back(next->address);
  }
  return out;
}

struct FoundType {
  const mdev::VgpuType* type = nullptr;
  bool listed = false;
};

// A type that a parent lists has priority over one that is only known for the board.
Result<FoundType> type_of(const VgpuTypeName& name, const mdev::VgpuGpu& gpu) {
  for (const mdev::VgpuParent& parent : gpu.parents) {
    auto type = find_type(name, parent.types);
    if (!type) return fail(std::move(type).error());
    if (*type != nullptr) return FoundType{.type = *type, .listed = true};
  }
  auto type = find_type(name, gpu.unlisted);
  if (!type) return fail(std::move(type).error());
  return FoundType{.type = *type, .listed = false};
}

bool fits(const mdev::VgpuDevice& device, const Want& want) {
  if (!device.iommu_group) return false;
  if (want.listed) return device.type_id == want.type->id;
  return device.short_name ==
         (want.type != nullptr ? want.type->short_name : want.entry->type.driver_short_name());
}

// Error if the driver tells neither a vGPU's type name nor the number of a desired type. Both may be the same
// type, and no change would be needed.
std::optional<Error> cannot_tell(const GpuMatch& match, const mdev::VgpuGpu& gpu) {
  const auto nameless = std::ranges::find_if(gpu.devices, &mdev::VgpuDevice::is_nameless);
  if (!gpu.framework->lists_only_creatable_types() || nameless == gpu.devices.end()) return std::nullopt;
  for (const Want& want : match.wants) {
    const bool number_known = want.listed || (want.type != nullptr && !want.type->id.empty());
    if (number_known || want.missing() == 0) continue;
    return Error{.code = Errc::unsupported,
                 .message = fmt::format("{}: {}: cannot tell whether vGPU {} of type {} is a {}: its driver "
                                        "lists neither now",
                                        want.entry->place, gpu.label(), nameless->id.text, nameless->type_id,
                                        want.entry->type.text()),
                 .hint = fmt::format("once it is gone the driver lists them again: `ferry vgpu delete "
                                     "--foreign --device {}`",
                                     gpu.address().text())};
  }
  return std::nullopt;
}

std::optional<Error> has_no_places(const ProfileItem& item, const mdev::VgpuGpu& gpu) {
  const auto placed =
      std::ranges::find_if(item.vgpus, [](const VgpuCount& entry) { return !entry.placement.empty(); });
  const std::string_view why = gpu.framework->why_no_placement();
  if (placed == item.vgpus.end() || why.empty()) return std::nullopt;
  return Error{.code = Errc::unsupported,
               .message = fmt::format("{}: {}: {}", placed->place, gpu.label(), why),
               .hint =
                   "leave placement out for such GPUs: GPUs from Ada on have it, and those from Ampere "
                   "on with mixed sizes"};
}

/// Error if vGPUs of the GPU cannot have an entry's parameters. Found before a vGPU goes for those that would
/// have them.
std::optional<Error> cannot_have_params(const ProfileItem& item, const mdev::VgpuGpu& gpu) {
  for (const VgpuCount& entry : item.vgpus) {
    if (!entry.params || entry.params->entries.empty()) continue;
    auto checked = gpu.framework->check_params(gpu, entry.params->text());
    if (!checked) return std::move(checked).error().during(entry.place + ": " + gpu.label());
  }
  return std::nullopt;
}

/// Ranks MIG-backed vGPUs so that vGPUs on one GPU instance stay together, first those beside a vGPU in use.
/// A kept vGPU limits its instance to vGPUs of its size; one alone on its instance takes no other's capacity.
auto instance_rank(const Want& want, const vfio::UseReport& use, const mdev::VgpuDevice& device) {
  std::uint32_t sharers = 0;
  bool in_use = false;
  for (const mdev::VgpuDevice* other : want.kept) {
    const bool shares = device.gpu_instance && other->gpu_instance == device.gpu_instance;
    if (!shares && other != &device) continue;
    ++sharers;
    in_use = in_use || !use.of(other->id.text).empty();
  }
  return std::tuple(!in_use, -std::int64_t{sharers}, sharers > 1 ? *device.gpu_instance : 0);
}

/// Sorts the vGPUs of which too many fit: the first ones stay.
void order_by_worth(Want& want, const vfio::UseReport& use, std::string_view node, bool spares_foreign) {
  const auto rank_of = [&](const mdev::VgpuDevice& device) {
    const auto number = our_number(node, device);
    const bool astray =
        !want.functions.empty() && std::ranges::find(want.functions, device.parent) == want.functions.end();
    // Removing a spared vGPU gets the whole GPU refused, so a vGPU made by Ferry is removed before it.
    const bool yields = spares_foreign && number;
    const auto& places = want.entry->placement;
    const bool is_placed = device.placement && std::ranges::find(places, *device.placement) != places.end();
    return std::tuple(use.of(device.id.text).empty(), yields, !is_placed, instance_rank(want, use, device),
                      !number, astray, number.value_or(0));
  };
  std::map<const mdev::VgpuDevice*, decltype(rank_of(*want.kept.front()))> ranks;
  for (const mdev::VgpuDevice* device : want.kept) ranks.emplace(device, rank_of(*device));
  std::ranges::stable_sort(want.kept, {}, [&](const mdev::VgpuDevice* device) { return ranks.at(device); });
}

}  // namespace

std::vector<const mdev::VgpuDevice*> Want::untuned() const {
  std::vector<const mdev::VgpuDevice*> out;
  const auto& desired = entry->params;
  if (!desired) return out;
  std::ranges::copy_if(kept, std::back_inserter(out), [&](const mdev::VgpuDevice* device) {
    if (!device->params) return !desired->entries.empty();
    const auto now = VgpuParams::parse(*device->params);
    return !now || !(*now == *desired);
  });
  return out;
}

Placing Want::placing() const {
  Placing out{.moves = {}, .left = entry->placement};
  if (out.left.empty()) return out;
  std::vector<const mdev::VgpuDevice*> astray;
  for (const mdev::VgpuDevice* device : kept) {
    const auto place = device->placement ? std::ranges::find(out.left, *device->placement) : out.left.end();
    if (place == out.left.end()) {
      astray.push_back(device);
    } else {
      out.left.erase(place);
    }
  }
  for (const mdev::VgpuDevice* device : astray) {
    out.moves.push_back({.device = device, .to = out.left.front()});
    out.left.erase(out.left.begin());
  }
  return out;
}

bool GpuMatch::agrees() const {
  return !problem && !functions && leftover.empty() &&
         std::all_of(wants.begin(), wants.end(), [](const Want& want) {
           return want.missing() == 0 && want.untuned().empty() && want.placing().moves.empty();
         });
}

std::vector<TypeCount> GpuMatch::desired() const {
  std::vector<TypeCount> out;
  out.reserve(wants.size());
  for (const Want& want : wants) out.push_back({.type = want.entry->type.text(), .count = want.entry->count});
  return out;
}

std::vector<TypeCount> GpuMatch::found() const {
  std::map<std::string, std::uint32_t> counts;
  for (const mdev::VgpuDevice* device : leftover) {
    const auto want = std::ranges::find_if(wants, [&](const Want& w) { return fits(*device, w); });
    ++counts[want == wants.end() ? device->short_name : want->entry->type.text()];
  }
  for (const Want& want : wants) {
    if (!want.kept.empty()) counts[want.entry->type.text()] += static_cast<std::uint32_t>(want.kept.size());
  }
  std::vector<TypeCount> out;
  out.reserve(counts.size());
  for (const auto& [type, count] : counts) out.push_back({.type = type, .count = count});
  return out;
}

GpuMatch match_gpu(const ProfileItem& item, const mdev::VgpuGpu& gpu, const vfio::UseReport& use,
                   std::string_view node, bool spares_foreign) {
  GpuMatch out;
  out.mixed_sizes = item.mixed_sizes;
  // The number of vGPUs decides the share of the GPU that each has, so there are no functions beside them. An
  // item without vGPUs leaves the functions to the host.
  if (gpu.framework->binds_functions() && !item.vgpus.empty()) {
    std::uint32_t desired = 0;
    for (const VgpuCount& entry : item.vgpus) desired += entry.count;
    if (desired != gpu.function.sriov_numvfs) out.functions = desired;
  }
  out.problem = has_no_places(item, gpu);
  if (!out.problem) out.problem = cannot_have_params(item, gpu);
  std::vector<const mdev::VgpuDevice*> devices;
  devices.reserve(gpu.devices.size());
  for (const mdev::VgpuDevice& device : gpu.devices) devices.push_back(&device);

  auto functions = functions_for(item, gpu);
  for (const VgpuCount& entry : item.vgpus) {
    Want want{.entry = &entry, .functions = std::move(functions[&entry])};
    if (auto found = type_of(entry.type, gpu)) {
      want.type = found->type;
      want.listed = found->listed;
    } else if (!out.problem) {
      out.problem = std::move(found).error().during(entry.place + ": " + gpu.label());
    }
    // Moves fitting vGPUs from `devices` to `kept`; if there are too many, the last ones go back.
    const auto rest = std::stable_partition(
        devices.begin(), devices.end(), [&](const mdev::VgpuDevice* device) { return !fits(*device, want); });
    want.kept.assign(rest, devices.end());
    devices.erase(rest, devices.end());
    if (want.kept.size() > entry.count) {
      order_by_worth(want, use, node, spares_foreign);
      devices.insert(devices.end(), want.kept.begin() + entry.count, want.kept.end());
      want.kept.resize(entry.count);
    }
    out.wants.push_back(std::move(want));
  }
  out.leftover = std::move(devices);
  std::ranges::sort(out.leftover, {},
                    [](const mdev::VgpuDevice* device) { return std::tie(device->parent, device->id); });
  if (!out.problem) out.problem = cannot_tell(out, gpu);
  return out;
}

}  // namespace ferry::vgpu
