// SPDX-License-Identifier: Apache-2.0
#include "mdev/vgpu_inventory.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "common/counted.h"
#include "mdev/mdev_bus.h"

namespace ferry {
namespace {

/// A GPU's virtual functions, in order of address.
using VirtualFunctions = std::map<PciAddress, std::vector<PciAddress>>;

VirtualFunctions virtual_functions(const Inventory& inventory) {
  VirtualFunctions out;
  for (const auto& [address, function] : inventory.functions) {
    if (function.physical_function) out[*function.physical_function].push_back(address);
  }
  return out;
}

bool offers_types(const MdevBus& bus, const PciAddress& address) {
  const auto parent = bus.parents.find(address);
  return parent != bus.parents.end() && (!parent->second.types.empty() || parent->second.problem);
}

// The virtual functions first: with them enabled the GPU itself offers nothing, though its directory may
// stay.
VgpuFramework framework_of(const HostFs& host, const MdevBus& bus, const PciAddress& gpu,
                           const std::vector<PciAddress>& functions) {
  for (const PciAddress& function : functions) {
    if (offers_types(bus, function)) return VgpuFramework::mdev_on_vf;
    if (host.exists(sysfs_path(function) / "nvidia/current_vgpu_type")) return VgpuFramework::vendor_vfio;
  }
  return offers_types(bus, gpu) ? VgpuFramework::mdev_on_pf : VgpuFramework::none;
}

std::string obstacle(const VgpuGpu& gpu) {
  const PciFunction& function = gpu.function;
  if (function.problem) return "cannot be read: " + function.problem->message;
  switch (gpu.framework) {
    case VgpuFramework::mdev_on_pf:
      for (const VgpuParent& parent : gpu.parents) {
        if (parent.problem) return "its vGPU types cannot be read: " + parent.problem->message;
      }
      return {};
    case VgpuFramework::mdev_on_vf:
    case VgpuFramework::vendor_vfio:
      return fmt::format("its vGPUs are made by {}, which is not supported yet", text(gpu.framework));
    case VgpuFramework::none:
      break;
  }
  if (on_vfio_driver(function)) return fmt::format("bound to {}: given away whole", *function.driver);
  if (!function.driver) return "no driver is bound to it";
  if (function.sriov_totalvfs > 0 && function.sriov_numvfs == 0) {
    return fmt::format("its driver {} offers no vGPU types; none of its {} virtual functions is enabled",
                       *function.driver, function.sriov_totalvfs);
  }
  return fmt::format("its driver {} offers no vGPU types", *function.driver);
}

}  // namespace

Result<VgpuInventory> scan_vgpus(const HostFs& host, const Inventory& inventory,
                                 const AcceleratorRules& rules) {
  auto bus = read_mdev_bus(host);
  if (!bus) return fail(std::move(bus).error());

  VgpuInventory out;
  out.notes = std::move(bus->notes);
  const VirtualFunctions virtuals = virtual_functions(inventory);
  std::map<PciAddress, std::size_t> gpu_of;  // each GPU and each of its virtual functions
  for (const auto& [address, function] : inventory.functions) {
    // NVIDIA's numbering takes the plain programming interface only.
    if (!rules.match(function) || (function.class_code & 0xffU) != 0) continue;
    VgpuGpu gpu;
    gpu.index = static_cast<unsigned>(out.gpus.size());
    gpu.function = function;
    std::vector<PciAddress> parents = {address};
    const auto found = virtuals.find(address);
    const auto functions = found == virtuals.end() ? std::vector<PciAddress>{} : found->second;
    parents.insert(parents.end(), functions.begin(), functions.end());
    for (const PciAddress& parent : parents) {
      gpu_of.emplace(parent, out.gpus.size());
      if (const auto known = bus->parents.find(parent); known != bus->parents.end()) {
        gpu.parents.push_back(known->second);
      }
    }
    gpu.framework = framework_of(host, *bus, address, functions);
    gpu.obstacle = obstacle(gpu);
    out.gpus.push_back(std::move(gpu));
  }

  std::set<PciAddress> strangers;
  for (VgpuDevice& device : bus->devices) {
    if (const auto gpu = gpu_of.find(device.parent); gpu != gpu_of.end()) {
      out.gpus[gpu->second].devices.push_back(std::move(device));
    } else {
      strangers.insert(device.parent);
    }
  }
  for (const PciAddress& stranger : strangers) {
    out.notes.push_back(
        fmt::format("{} carries mediated devices and is no accelerator: passed over", stranger.text()));
  }
  return out;
}

std::map<PciAddress, std::string> kept_for_vgpus(const VgpuInventory& inventory) {
  std::map<PciAddress, std::string> out;
  for (const VgpuGpu& gpu : inventory.gpus) {
    if (!gpu.devices.empty()) {
      out[gpu.address()] = "it carries " + counted(gpu.devices.size(), "vGPU");
    } else if (gpu.framework != VgpuFramework::none) {
      out[gpu.address()] = "its driver offers vGPU types";
    } else if (gpu.function.sriov_numvfs > 0) {
      out[gpu.address()] = "it has " + counted(gpu.function.sriov_numvfs, "virtual function");
    }
  }
  return out;
}

std::map<PciAddress, std::string> carriers_of_vgpus(const VgpuInventory& inventory) {
  std::map<PciAddress, std::string> out;
  for (const VgpuGpu& gpu : inventory.gpus) {
    std::map<PciAddress, std::size_t> carried;
    for (const VgpuDevice& device : gpu.devices) ++carried[device.parent];
    if (!gpu.devices.empty()) carried[gpu.address()] = gpu.devices.size();  // with those on its VFs
    for (const auto& [carrier, count] : carried) {
      out[carrier] = fmt::format("carries {}; `ferry vgpu delete --device {}` takes {} away",
                                 counted(count, "vGPU"), gpu.address().text(), count == 1 ? "it" : "them");
    }
  }
  return out;
}

UseQuestion use_question(const VgpuDevice& device) {
  return {.device = device.id.text, .nodes = device.nodes};
}

}  // namespace ferry
