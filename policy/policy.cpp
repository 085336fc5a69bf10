// SPDX-License-Identifier: Apache-2.0
#include "policy/policy.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "mdev/framework.h"
#include "vfio/bind/rebind_plan.h"
#include "vgpu-dm/types/type_capacity.h"
#include "vgpu-dm/types/type_names.h"
#include "vgpu-dm/types/type_table.h"

namespace ferry::policy {
bool AllowedDevices::allows(const mdev::VgpuType& type) const {
  return std::ranges::any_of(types, [&](const std::string& pattern) {
    return fits_glob(pattern, type.short_name) || fits_glob(pattern, type.name);
  });
}

bool PolicyItem::matches(const mdev::VgpuGpu& gpu, const ModelNames& models) const {
  const bool named = !selection.addresses.empty() || !selection.vendors.empty();
  return (named ? gpus.selects(gpu) : gpus.matches(gpu)) && selection.matches(gpu.function, models);
}

vfio::AcceleratorRules rules_for(const Policy& policy, vfio::AcceleratorRules rules) {
  for (const PolicyItem& item : policy.items) {
    rules.named.insert(item.selection.addresses.begin(), item.selection.addresses.end());
    rules.named_vendors.insert(item.selection.vendors.begin(), item.selection.vendors.end());
    for (const vgpu::DeviceFilter& filter : item.gpus.filters) rules.named_vendors.insert(filter.vendor);
  }
  return rules;
}

const PolicyItem* Policy::item_for(const mdev::VgpuGpu& gpu, const ModelNames& models) const {
  const auto last = std::find_if(items.rbegin(), items.rend(),
                                 [&](const PolicyItem& item) { return item.matches(gpu, models); });
  return last == items.rend() ? nullptr : &*last;
}

bool Policy::asks_for(Mode mode) const {
  return std::ranges::any_of(items, [mode](const PolicyItem& item) {
    return item.allocation == Allocation::device_plugin && item.mode == mode;
  });
}

ResolvedPolicy resolve(const Policy& policy, const mdev::VgpuInventory& inventory, const ModelNames& models) {
  ResolvedPolicy out;
  out.vgpus.name = policy.name;
  out.vgpus.place = policy.place;
  out.release = policy.release;
  out.foreign = policy.foreign;
  for (const mdev::VgpuGpu& gpu : inventory.gpus) {
    const PolicyItem* item = policy.item_for(gpu, models);
    if (item == nullptr) continue;
    if (item->allocation == Allocation::dra) {
      out.for_dra.emplace(gpu.address(), item->allow);
      continue;
    }
    out.modes.emplace(gpu.address(), item->mode);
    vgpu::ProfileItem carried;
    carried.only = gpu.address();  // another GPU may have its number by the time it is applied
    carried.whole = item->mode == Mode::passthrough;
    carried.place = item->gpus.place;
    if (item->mode == Mode::vgpu) {
      carried.vgpus = item->gpus.vgpus;
      carried.mixed_sizes = item->gpus.mixed_sizes;
    }
    out.vgpus.items.push_back(std::move(carried));
  }
  return out;
}

namespace {

/// The type with this short name, as the driver lists it or else as the table has it. Absent: neither does.
std::optional<mdev::VgpuType> type_with(const mdev::VgpuGpu& gpu, const std::string& short_name) {
  for (mdev::VgpuType& type : vgpu::types_of(gpu))
    if (type.short_name == short_name) return std::move(type);
  const vgpu::BoardTypes types(gpu.function);
  const mdev::VgpuType* const type = types.find(short_name);
  return type == nullptr ? std::nullopt : std::optional(*type);
}

/// True if claims can have such a device of the GPU.
bool goes_to_claims(const mdev::VgpuGpu& gpu, const std::string& device, const AllowedDevices& allow) {
  if (gpu.function.ids() == device && allow.whole) return true;
  if (gpu.framework->binds_functions()) {
    const auto allowed = [&](const mdev::VgpuType& type) { return type.id == device && allow.allows(type); };
    return std::ranges::any_of(vgpu::types_of(gpu), allowed);
  }
  const auto type = type_with(gpu, device);
  return type && vgpu::is_mig_backed(*type) == vgpu::has_instances(gpu) && allow.allows(*type);
}

/// The names under which the device plugin has a GPU and its vGPUs, once the policy is applied.
std::set<std::string> plugin_names(const mdev::VgpuGpu& gpu, const ResolvedPolicy& resolved,
                                   const vfio::Inventory& inventory, const ResourceNames& names,
                                   const std::set<vfio::PciAddress>& claimed) {
  std::set<std::string> out;
  const auto add_function = [&](const vfio::PciAddress& address) {
    const vfio::PciFunction* const function = inventory.find(address);
    // The plugin marks a function that has the IDs of its GPU.
    if (function != nullptr)
      out.insert(names.of_gpu(*function) + (function->ids() == gpu.function.ids() ? "_VF" : ""));
  };
  const bool whole_functions = gpu.framework->binds_functions();
  const auto mode = resolved.modes.find(gpu.address());
  if (mode == resolved.modes.end()) {
    if (claimed.contains(gpu.address())) return out;
    if (vfio::on_vfio_driver(gpu.function)) out.insert(names.of_gpu(gpu.function));
    for (const mdev::VgpuDevice& vgpu : gpu.devices)
      if (whole_functions)
        add_function(vgpu.parent);
      else
        out.insert(names.of_vgpus(vgpu.type_name));
  } else if (mode->second == Mode::passthrough) {
    out.insert(names.of_gpu(gpu.function));
  } else if (const vgpu::ProfileItem* item = resolved.vgpus.item_for(gpu); item != nullptr) {
    if (whole_functions && !item->vgpus.empty()) std::ranges::for_each(gpu.functions, add_function);
    for (const vgpu::VgpuCount& vgpus : item->vgpus)
      if (const auto type = type_with(gpu, vgpus.type.driver_short_name()))
        out.insert(names.of_vgpus(type->name));
  }
  return out;
}

}  // namespace

Result<> check_allocations(const ResolvedPolicy& resolved, const vfio::Inventory& inventory,
                           const mdev::VgpuInventory& vgpus, const ResourceNames& names,
                           const std::set<vfio::PciAddress>& claimed) {
  for (const auto& [gpu, allow] : resolved.for_dra) {
    const vfio::PciFunction* function = inventory.find(gpu);
    if (function == nullptr) continue;
    for (const vfio::PciAddress& other : inventory.group_of(*function)) {
      if (resolved.for_dra.contains(other) || vgpus.find(other) == nullptr) continue;
      return fail(
          Errc::refused,
          fmt::format("{} is for DRA and {} is not, but they share an IOMMU group", gpu.text(), other.text()),
          "give both one allocation, or the card another slot");
    }
  }

  for (const NamedDevices& one : names.classes) {
    const mdev::VgpuGpu* of_class = nullptr;
    const mdev::VgpuGpu* of_plugin = nullptr;
    for (const mdev::VgpuGpu& gpu : vgpus.gpus) {
      const auto allow = resolved.for_dra.find(gpu.address());
      if (allow == resolved.for_dra.end()) {
        if (plugin_names(gpu, resolved, inventory, names, claimed).contains(one.resource)) of_plugin = &gpu;
      } else if (goes_to_claims(gpu, one.device, allow->second)) {
        of_class = &gpu;
      }
    }
    if (of_class == nullptr || of_plugin == nullptr) continue;
    return fail(
        Errc::refused,
        fmt::format("{} has two owners: a DeviceClass, for claims of {}, and the device plugin, for {}",
                    one.resource, of_class->address().text(), of_plugin->address().text()),
        "give all devices of this name on the node to claims, or all to the device plugin; or name "
        "the plugin's by an alias (plugin.aliases)");
  }
  return {};
}

}  // namespace ferry::policy
