// SPDX-License-Identifier: Apache-2.0
#include "mdev/vgpu_inventory.h"

#include <algorithm>
#include <map>
#include <set>
#include <sstream>
#include <utility>

#include <fmt/format.h>

#include "common/text/text.h"
#include "mdev/held_gpus.h"
#include "mdev/mdev_bus.h"
#include "mdev/vendor_vfio.h"

namespace ferry::mdev {
namespace {

/// The virtual functions of each GPU, in order of address.
using VirtualFunctions = std::map<vfio::PciAddress, std::vector<const vfio::PciFunction*>>;

VirtualFunctions virtual_functions(const vfio::Inventory& inventory) {
  VirtualFunctions out;
  for (const auto& [address, function] : inventory.functions) {
    if (function.physical_function) out[*function.physical_function].push_back(&function);
  }
  return out;
}

bool offers_types(const MdevBus& bus, const vfio::PciAddress& address) {
  const auto parent = bus.parents.find(address);
  return parent != bus.parents.end() && (!parent->second.types.empty() || parent->second.problem);
}

// Virtual functions are checked first: once they are enabled, the GPU itself offers nothing, though its
// directory may stay.
VgpuFramework framework_of(const HostFs& host, const MdevBus& bus, const vfio::PciAddress& gpu,
                           const std::vector<const vfio::PciFunction*>& functions) {
  for (const vfio::PciFunction* function : functions) {
    if (offers_types(bus, function->address)) return VgpuFramework::mdev_on_vf;
    if (has_vendor_vfio(host, function->address)) return VgpuFramework::vendor_vfio;
  }
  return offers_types(bus, gpu) ? VgpuFramework::mdev_on_pf : VgpuFramework::none;
}

// Names vGPUs by the types of the GPU's other functions, since a function with a vGPU lists no type, not even
// that one. The number of a type is never looked up on another GPU.
void name_by_siblings(VgpuGpu& gpu) {
  std::map<std::string, const VgpuType*> listed;
  for (const VgpuParent& parent : gpu.parents) {
    for (const VgpuType& type : parent.types) listed.emplace(type.id, &type);
  }
  for (VgpuDevice& device : gpu.devices) {
    const auto type = listed.find(device.type_id);
    if (type == listed.end()) continue;
    device.type_name = type->second->name;
    device.short_name = type->second->short_name;
  }
}

void remember_the_rest(const std::vector<VgpuDevice>& before, std::vector<VgpuDevice>& now) {
  for (VgpuDevice& device : now) {
    const auto same = [&](const VgpuDevice& other) {
      return other.id == device.id && other.parent == device.parent && other.type_id == device.type_id;
    };
    const auto known = std::ranges::find_if(before, same);
    if (known == before.end()) continue;
    const auto group = device.iommu_group;
    device = *known;
    device.iommu_group = group;
  }
}

void add_vendor_functions(const HostFs& host, const HeldGpus& held,
                          const std::vector<const vfio::PciFunction*>& functions, VgpuGpu& gpu) {
  for (const vfio::PciFunction* function : functions) {
    if (!has_vendor_vfio(host, function->address)) continue;  // on another driver, or on none
    if (held.holds(host, function->address)) {
      gpu.parents.push_back(
          {.address = function->address, .types = {}, .problem = held_by_an_act(function->address)});
      continue;
    }
    VendorFunction read = read_vendor_function(host, *function);
    gpu.parents.push_back(std::move(read.parent));
    if (auto& device = read.device) gpu.devices.push_back(std::move(*device));
  }
  name_by_siblings(gpu);
}

void add_mdev_parent(const MdevBus& bus, const vfio::PciAddress& address, VgpuGpu& gpu) {
  if (const auto known = bus.parents.find(address); known != bus.parents.end())
    gpu.parents.push_back(known->second);
}

std::string obstacle(const VgpuGpu& gpu) {
  const vfio::PciFunction& function = gpu.function;
  if (function.problem) return "cannot be read: " + function.problem->message;
  switch (gpu.framework) {
    case VgpuFramework::mdev_on_pf:
    case VgpuFramework::mdev_on_vf:
    case VgpuFramework::vendor_vfio:
      for (const VgpuParent& parent : gpu.parents) {
        if (parent.problem) return "its vGPU types cannot be read: " + parent.problem->message;
      }
      return {};
    case VgpuFramework::none:
      break;
  }
  if (vfio::on_vfio_driver(function)) return fmt::format("bound to {} for passthrough", *function.driver);
  if (!function.driver) return "no driver is bound to it";
  if (function.sriov_numvfs > 0) {
    return fmt::format("its driver {} offers no vGPU types on its {}", *function.driver,
                       counted(function.sriov_numvfs, "virtual function"));
  }
  if (!gpu.host_driver) {
    return fmt::format("its driver {} offers no vGPU types and is no vGPU host driver", *function.driver);
  }
  if (gpu.awaits_types())
    return fmt::format("its driver {} offers no vGPU types until nvidia-vgpud lists them", *function.driver);
  if (function.sriov_totalvfs > 0) {
    return fmt::format("its driver {} offers no vGPU types; none of its {} virtual functions is enabled",
                       *function.driver, function.sriov_totalvfs);
  }
  return fmt::format("its driver {} offers no vGPU types", *function.driver);
}

/// The facts about a GPU that do not depend on its driver.
VgpuGpu gpu_of_kind(const vfio::PciFunction& function, unsigned index, bool never_has_functions) {
  VgpuGpu gpu;
  gpu.index = index;
  gpu.function = function;
  gpu.never_has_functions = never_has_functions;
  return gpu;
}

VgpuGpu read_gpu(const HostFs& host, const HeldGpus& held, const MdevBus& bus, VgpuGpu gpu,
                 const std::vector<const vfio::PciFunction*>& functions) {
  gpu.functions.reserve(functions.size());
  for (const vfio::PciFunction* virtual_one : functions) {
    gpu.functions.push_back(virtual_one->address);
    // A driver with vGPU attributes makes vGPUs there, even if its name is a VFIO driver's.
    if (vfio::on_vfio_driver(*virtual_one) && !has_vendor_vfio(host, virtual_one->address))
      gpu.functions_away.push_back(virtual_one->address);
  }
  gpu.framework = framework_of(host, bus, gpu.address(), functions);
  if (gpu.framework == VgpuFramework::vendor_vfio) {
    add_vendor_functions(host, held, functions, gpu);
  } else {
    if (gpu.framework != VgpuFramework::mdev_on_vf) add_mdev_parent(bus, gpu.address(), gpu);
    for (const vfio::PciFunction* virtual_one : functions) add_mdev_parent(bus, virtual_one->address, gpu);
  }
  // The sign is its driver's, and a function on a vfio driver has no other.
  gpu.host_driver = gpu.framework != VgpuFramework::none ||
                    (!vfio::on_vfio_driver(gpu.function) && host.exists(host_driver_sign(gpu.address())));
  gpu.obstacle = obstacle(gpu);
  return gpu;
}

}  // namespace

std::filesystem::path host_driver_sign(const vfio::PciAddress& gpu) {
  return std::filesystem::path("proc/driver/nvidia/gpus") / gpu.text() / "unbindLock";
}

Result<VgpuInventory> scan_vgpus(const HostFs& host, const vfio::Inventory& inventory,
                                 const vfio::AcceleratorRules& rules) {
  const auto held = HeldGpus::read(host);
  if (!held) return fail(Error(held.error()));
  auto bus = read_mdev_bus(host);
  if (!bus) return fail(std::move(bus).error());

  VgpuInventory out;
  out.notes = std::move(bus->notes);
  const VirtualFunctions virtuals = virtual_functions(inventory);
  std::map<vfio::PciAddress, std::size_t> gpu_of;  // index by each GPU and each of its virtual functions
  std::vector<const vfio::PciFunction*> gpus;
  for (const auto& [address, function] : inventory.functions) {
    // Only programming interface 0 counts, as in NVIDIA's own numbering.
    if (rules.match(function) && (function.class_code & 0xffU) == 0) gpus.push_back(&function);
  }
  // Functions that match only by name come last, so that naming one does not renumber the others.
  std::ranges::stable_partition(gpus,
                                [&](const vfio::PciFunction* gpu) { return rules.match_unnamed(*gpu); });
  for (const vfio::PciFunction* gpu : gpus) {
    const vfio::PciFunction& function = *gpu;
    const vfio::PciAddress& address = function.address;
    const auto found = virtuals.find(address);
    const auto functions = found == virtuals.end() ? std::vector<const vfio::PciFunction*>{} : found->second;
    gpu_of.emplace(address, out.gpus.size());
    for (const vfio::PciFunction* virtual_one : functions)
      gpu_of.emplace(virtual_one->address, out.gpus.size());
    const bool never = rules.never_has_virtual_functions && rules.never_has_virtual_functions(function);
    const auto index = static_cast<unsigned>(out.gpus.size());
    out.gpus.push_back(read_gpu(host, *held, *bus, gpu_of_kind(function, index, never), functions));
    out.gpus.back().by_name = !rules.match_unnamed(function);
  }

  std::set<vfio::PciAddress> strangers;
  for (VgpuDevice& device : bus->devices) {
    if (const auto gpu = gpu_of.find(device.parent); gpu != gpu_of.end()) {
      out.gpus[gpu->second].devices.push_back(std::move(device));
    } else {
      strangers.insert(device.parent);
    }
  }
  for (const vfio::PciAddress& stranger : strangers) {
    out.notes.push_back(
        fmt::format("{} carries mediated devices and is no accelerator: passed over", stranger.text()));
  }
  take_captured_numbers(host, out);
  return out;
}

Result<VgpuGpu> scan_gpu_again(const HostFs& host, const vfio::Inventory& inventory, const VgpuGpu& before) {
  const vfio::PciFunction* function = inventory.find(before.address());
  if (function == nullptr) return fail(Errc::not_found, before.label() + " is gone");
  std::vector<const vfio::PciFunction*> functions;
  std::set<vfio::PciAddress> addresses = {before.address()};
  for (const auto& [address, other] : inventory.functions) {
    if (other.physical_function != before.address()) continue;
    functions.push_back(&other);
    addresses.insert(address);
  }
  const auto held = HeldGpus::read(host);
  if (!held) return fail(Error(held.error()));
  auto bus = read_mdev_bus(host, addresses);
  if (!bus) return fail(std::move(bus).error());
  VgpuGpu gpu = read_gpu(host, *held, *bus, gpu_of_kind(*function, before.index, before.never_has_functions),
                         functions);
  for (VgpuDevice& device : bus->devices) gpu.devices.push_back(std::move(device));
  gpu.by_name = before.by_name;
  return gpu;
}

void scan_devices_again(const HostFs& host, const vfio::Inventory& inventory, VgpuFacts facts, VgpuGpu& gpu) {
  const std::vector<VgpuDevice> before = std::exchange(gpu.devices, {});
  for (VgpuParent& parent : gpu.parents) {
    if (gpu.framework != VgpuFramework::vendor_vfio) {
      read_mdev_devices(host, facts, parent, gpu.devices);
      continue;
    }
    const vfio::PciFunction* function = inventory.find(parent.address);
    if (function == nullptr || (parent.problem && parent.problem->code == Errc::stuck)) continue;
    auto device = read_vendor_device(host, facts, *function);
    if (!device) {
      parent.problem = std::move(device).error();
    } else if (*device) {
      gpu.devices.push_back(std::move(**device));
    }
  }
  if (gpu.framework == VgpuFramework::vendor_vfio) name_by_siblings(gpu);
  if (facts == VgpuFacts::identity) remember_the_rest(before, gpu.devices);
}

std::map<vfio::PciAddress, std::string> kept_for_vgpus(const VgpuInventory& inventory) {
  std::map<vfio::PciAddress, std::string> out;
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

std::string removal_command(const VgpuGpu& gpu, const MadeByFerry& ours) {
  const bool foreign =
      std::ranges::any_of(gpu.devices, [&](const VgpuDevice& device) { return !ours || !ours(device); });
  return fmt::format("ferry vgpu delete --device {}{}", gpu.address().text(), foreign ? " --foreign" : "");
}

std::map<vfio::PciAddress, std::string> carriers_of_vgpus(const VgpuInventory& inventory,
                                                          const MadeByFerry& ours) {
  std::map<vfio::PciAddress, std::string> out;
  for (const VgpuGpu& gpu : inventory.gpus) {
    std::map<vfio::PciAddress, std::size_t> carried;
    for (const VgpuDevice& device : gpu.devices) ++carried[device.parent];
    if (!gpu.devices.empty()) carried[gpu.address()] = gpu.devices.size();  // all its vGPUs
    for (const auto& [carrier, count] : carried) {
      out[carrier] = fmt::format("carries {}; `{}` takes {} away", counted(count, "vGPU"),
                                 removal_command(gpu, ours), count == 1 ? "it" : "them");
    }
    for (const VgpuParent& parent : gpu.parents) {
      if (!parent.problem) continue;
      const std::string why = "may carry vGPUs that cannot be read: " + parent.problem->message;
      out.try_emplace(parent.address, why);
      out.try_emplace(gpu.address(), why);
    }
  }
  return out;
}

std::map<vfio::PciAddress, std::string> carriers_of_vgpus(const VgpuInventory& inventory) {
  return carriers_of_vgpus(inventory, {});
}

vfio::UseQuestion use_question(const VgpuDevice& device) {
  return {.device = device.id.text, .nodes = device.nodes};
}

void take_captured_numbers(const HostFs& host, VgpuInventory& inventory) {
  const auto text = host.read_file(kCapturedVgpus);
  if (!text) return;
  std::istringstream lines(*text);
  std::map<std::string, unsigned> numbers;
  std::string id;
  for (unsigned number = 0; lines >> id >> number;) numbers[id] = number;
  for (VgpuGpu& gpu : inventory.gpus)
    for (VgpuDevice& device : gpu.devices)
      if (const auto known = numbers.find(device.id.text); known != numbers.end())
        device.captured_number = known->second;
}

std::string captured_line(const VgpuId& id, unsigned number) {
  return fmt::format("{} {}\n", id.text, number);
}

}  // namespace ferry::mdev
