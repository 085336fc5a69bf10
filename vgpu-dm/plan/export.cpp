// SPDX-License-Identifier: Apache-2.0
#include "vgpu-dm/plan/export.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/config/config_tree.h"
#include "common/text/text.h"
#include "mdev/framework.h"
#include "vgpu-dm/plan/comparison.h"
#include "vgpu-dm/plan/gpu_capacity.h"
#include "vgpu-dm/profile/profile_yaml.h"

namespace ferry::vgpu {

ExtraSettings extras_of(const mdev::VgpuGpu& gpu) {
  ExtraSettings out;
  out.several_sizes = carries_several_sizes(gpu);
  std::map<std::string, std::vector<const mdev::VgpuDevice*>> by_type;
  for (const mdev::VgpuDevice& device : gpu.devices) by_type[device.short_name].push_back(&device);
  for (const auto& [type, devices] : by_type) {
    const std::string text = devices.front()->params.value_or("");
    const auto params = VgpuParams::parse(text);
    if (!params) {
      out.unsaid.push_back(fmt::format("{}: the parameters of vGPU {} ({}), '{}', cannot stand in a file: {}",
                                       gpu.label(), devices.front()->id.text, type, text,
                                       params.error().message));
      continue;
    }
    const bool same = std::ranges::all_of(devices, [&](const mdev::VgpuDevice* device) {
      const auto others = VgpuParams::parse(device->params.value_or(""));
      return others && *others == *params;
    });
    if (!same) {
      out.unsaid.push_back(
          fmt::format("{}: its {} of type {} differ in their parameters, which stand once "
                      "for all of a type: left out",
                      gpu.label(), counted(devices.size(), "vGPU"), type));
    } else if (!params->entries.empty()) {
      out.params.emplace(type, *params);
    }
  }
  return out;
}

std::string why_no_item(const mdev::VgpuGpu& gpu) {
  if (!gpu.framework->binds_functions()) return {};
  if (const Error* problem = gpu.problem()) return problem->message;
  if (gpu.devices.empty() || gpu.devices.size() == gpu.function.sriov_numvfs) return {};
  return fmt::format("{} of its {} virtual functions {} on a vfio driver, and a file names all or none",
                     gpu.devices.size(), gpu.function.sriov_numvfs, gpu.devices.size() == 1 ? "is" : "are");
}

std::vector<std::string> unsaid_by_v1(const mdev::VgpuInventory& inventory) {
  std::vector<std::string> out;
  for (const mdev::VgpuGpu& gpu : inventory.gpus) {
    if (const std::string why = why_no_item(gpu); !why.empty())
      out.push_back(fmt::format("{}: left out: {}", gpu.label(), why));
    const ExtraSettings extras = extras_of(gpu);
    if (extras.several_sizes) {
      out.push_back(gpu.label() +
                    ": carries vGPUs of several sizes; v1 cannot say that it may, and they could not be made "
                    "again by it: `ferry export` writes a file that can");
    }
    if (!extras.params.empty() || !extras.unsaid.empty()) {
      out.push_back(gpu.label() +
                    ": its vGPUs have parameters, which v1 cannot say: `ferry export` writes "
                    "a file that can");
    }
  }
  return out;
}

namespace {

using Carried = std::map<std::string, std::uint32_t>;

Result<Carried> carried_by(const mdev::VgpuGpu& gpu) {
  if (const Error* problem = gpu.problem()) return fail(Error(*problem).during(gpu.label()));
  Carried out;
  for (const mdev::VgpuDevice& device : gpu.devices) {
    if (!device.iommu_group) {
      return fail(Errc::failed,
                  fmt::format("{}: no driver has taken vGPU {} ({}), so that it is none", gpu.label(),
                              device.id.text, device.short_name),
                  fmt::format("have it removed (`ferry vgpu delete --foreign --device {}`) or made anew "
                              "(`ferry vgpu apply`), then export again",
                              gpu.address().text()));
    }
    if (!VgpuTypeName::parse(device.short_name)) {
      return fail(
          Errc::unsupported,
          fmt::format(
              "{}: carries vGPU {} of type {}, {}", gpu.label(), device.id.text, device.short_name,
              device.is_nameless() ? "whose name the driver does not tell now" : "which no file can name"),
          fmt::format("have it removed (`ferry vgpu delete --foreign --device {}`), then export again",
                      gpu.address().text()));
    }
    ++out[device.short_name];
  }
  return out;
}

/// The filter that names a GPU which counts only by name; empty: it needs none.
std::vector<DeviceFilter> filters_for(const mdev::VgpuGpu& gpu) {
  if (!gpu.by_name) return {};
  const vfio::PciFunction& function = gpu.function;
  return {DeviceFilter{.vendor = function.vendor,
                       .device = function.device,
                       .subsystem_vendor = function.subsystem_vendor,
                       .subsystem_device = function.subsystem_device}};
}

std::string key_text(const std::string& key) {
  return is_plain_string(key) ? key : fmt::format("\"{}\"", key);
}

}  // namespace

Result<Profile> export_profile(const mdev::VgpuInventory& inventory, const std::string& name) {
  if (!can_be_label(name))
    return fail(Errc::usage, fmt::format("'{}' cannot name a configuration: no label could choose it", name),
                kLabelNames);
  Profile profile{.name = name, .items = {}, .place = {}};
  // Keyed by the filter that a GPU which counts only by name needs, and its vGPUs; value: index into
  // profile.items.
  std::map<std::pair<std::string, Carried>, std::size_t> item_for;
  std::map<std::string, std::size_t> items_of;  // by that filter, and GPUs left out; empty: none is needed
  for (const mdev::VgpuGpu& gpu : inventory.gpus) {
    const std::vector<DeviceFilter> filters = filters_for(gpu);
    const std::string filter = filters.empty() ? std::string() : filters.front().text();
    if (!why_no_item(gpu).empty()) {
      ++items_of[filter];  // so that an item with this filter is not for all devices
      continue;
    }
    auto carried = carried_by(gpu);
    if (!carried) return fail(std::move(carried).error());
    const auto carries_beside = [&](const mdev::VgpuGpu& other) {
      return !other.devices.empty() && other.by_name && filters_for(other) == filters;
    };
    // judge() lets such a GPU be without an item, unless an item's filter names it too.
    if (gpu.by_name && std::ranges::none_of(inventory.gpus, carries_beside)) continue;
    // A GPU that cannot carry vGPUs has an item too, `vgpu-devices: {}`. Without an item `assert` fails, here
    // as under NVIDIA's program; `apply` changes nothing on a GPU without vGPUs, whatever its driver.
    const auto [place, fresh] = item_for.emplace(std::pair(filter, *carried), profile.items.size());
    if (fresh) {
      ProfileItem& item = profile.items.emplace_back();
      for (const auto& [type, count] : *carried)
        item.vgpus.push_back({.type = VgpuTypeName::parse(type).value(), .count = count, .place = {}});
      item.filters = filters;
      ++items_of[filter];
    }
    profile.items[place->second].indices.push_back(std::int64_t{gpu.index});
  }
  for (const auto& [key, place] : item_for) {
    if (items_of.at(key.first) > 1) continue;
    profile.items[place].indices.clear();
    profile.items[place].all_devices = true;
  }
  // A configuration has an item. It is not for `all`: applied elsewhere, that would clear a whole node.
  if (profile.items.empty()) profile.items.emplace_back();

  // The code that reads profiles and judges hosts verifies that the file describes the host.
  const ConfigText text{.file = "the profile of this host", .text = profile_text(profile)};
  const auto file = read_profiles(text);
  if (!file) return fail(Errc::unsupported, file.error().message, file.error().hint);
  const auto agrees = assert_profile(file->profiles.front(), inventory);
  if (!agrees) return fail(Errc::unsupported, agrees.error().message, agrees.error().hint);
  return profile;
}

std::string profile_text(const Profile& profile) {
  std::string out = fmt::format("version: v1\nvgpu-configs:\n  {}:\n", key_text(profile.name));
  for (const ProfileItem& item : profile.items) {
    out += fmt::format("  - devices: {}\n",
                       item.all_devices ? "all" : fmt::format("[{}]", fmt::join(item.indices, ", ")));
    if (!item.filters.empty()) {
      std::vector<std::string> filters;
      filters.reserve(item.filters.size());
      for (const DeviceFilter& filter : item.filters) filters.push_back(fmt::format("\"{}\"", filter.text()));
      out += fmt::format("    device-filter: [{}]\n", fmt::join(filters, ", "));
    }
    out += item.vgpus.empty() ? "    vgpu-devices: {}\n" : "    vgpu-devices:\n";
    for (const VgpuCount& vgpu : item.vgpus) {
      out += fmt::format("      {}: {}\n", key_text(vgpu.type.text()), vgpu.count);
    }
  }
  return out;
}

}  // namespace ferry::vgpu
