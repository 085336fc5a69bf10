// SPDX-License-Identifier: Apache-2.0
#include "mdev/vgpu_inventory.h"

#include <algorithm>
#include <set>
#include <sstream>
#include <utility>

#include <fmt/format.h>

#include "common/text/text.h"
#include "mdev/framework.h"
#include "mdev/mdev_bus.h"
#include "mdev/stuck_gpus.h"

namespace ferry::mdev {
namespace {

/// In order of address.
std::vector<const vfio::PciFunction*> virtual_functions_of(const vfio::Inventory& inventory,
                                                           const vfio::PciAddress& gpu) {
  std::vector<const vfio::PciFunction*> out;
  for (const auto& [address, function] : inventory.functions)
    if (function.physical_function == gpu) out.push_back(&function);
  return out;
}

std::string obstacle(const VgpuGpu& gpu) {
  const vfio::PciFunction& function = gpu.function;
  if (function.problem) return "cannot be read: " + function.problem->message;
  if (gpu.framework->makes_vgpus() && !gpu.offers_nothing()) {
    if (const Error* problem = gpu.problem()) return "its vGPU types cannot be read: " + problem->message;
    if (!gpu.framework->binds_functions() || !gpu.functions.empty()) return {};
    return fmt::format("none of its {} virtual functions is enabled{}", function.sriov_totalvfs,
                       gpu.unlisted.empty() ? "" : "; each would be a " + gpu.unlisted.front().short_name);
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

VgpuGpu read_gpu(const HostScan& scan, const vfio::PciFunction& function, VirtualFunctions functions,
                 bool never_has_functions) {
  VgpuGpu gpu;
  gpu.function = function;
  gpu.never_has_functions = never_has_functions;
  gpu.framework = &framework_of(scan, gpu.address(), functions);
  gpu.functions.reserve(functions.size());
  for (const vfio::PciFunction* virtual_one : functions) {
    gpu.functions.push_back(virtual_one->address);
    if (!vfio::on_vfio_driver(*virtual_one)) continue;
    // A driver with vGPU attributes makes vGPUs there, even if its name is a VFIO driver's.
    if (gpu.framework->makes_vgpus() && gpu.framework->is_parent(scan, virtual_one->address)) continue;
    gpu.functions_away.push_back(virtual_one->address);
  }
  gpu.framework->read_gpu(scan, functions, gpu);
  // The sign is its driver's, and a function on a vfio driver has no other.
  gpu.host_driver = gpu.framework->makes_vgpus() || (!vfio::on_vfio_driver(gpu.function) &&
                                                     scan.host.exists(host_driver_sign(gpu.address())));
  gpu.obstacle = obstacle(gpu);
  return gpu;
}

/// Sets VgpuDevice::captured_number of the vGPUs that the file lists. A host without the file keeps all of
/// them unset; reading stops at a line of another form.
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

}  // namespace

std::filesystem::path host_driver_sign(const vfio::PciAddress& gpu) {
  return std::filesystem::path("proc/driver/nvidia/gpus") / gpu.text() / "unbindLock";
}

Result<VgpuInventory> scan_vgpus(const HostFs& host, const vfio::Inventory& inventory,
                                 const vfio::AcceleratorRules& rules) {
  const auto stuck = StuckGpus::read(host);
  if (!stuck) return fail(stuck.error());
  auto bus = read_mdev_bus(host, *stuck);
  if (!bus) return fail(std::move(bus).error());

  VgpuInventory out;
  out.notes = std::move(bus->notes);
  const HostScan scan{.host = host, .inventory = inventory, .stuck = *stuck, .bus = *bus};
  std::map<vfio::PciAddress, std::size_t> gpu_of;  // index by each GPU and each of its virtual functions
  std::vector<const vfio::PciFunction*> gpus;
  for (const auto& [address, function] : inventory.functions) {
    // Only programming interface 0 counts, as in NVIDIA's own numbering.
    if (rules.match_by_name(function) && (function.class_code & 0xffU) == 0) gpus.push_back(&function);
  }
  // Functions that match only by name come last, NVSwitches after GPUs. Each has its number whether it is
  // named or not, so that naming one does not renumber the others.
  std::ranges::stable_sort(gpus, {}, [&](const vfio::PciFunction* gpu) {
    return std::pair(!rules.match_unnamed(*gpu), !rules.is_of_another_vendor(*gpu));
  });
  for (std::size_t number = 0; number < gpus.size(); ++number) {
    const vfio::PciFunction& function = *gpus[number];
    if (!rules.match(function)) continue;
    const auto functions = virtual_functions_of(inventory, function.address);
    gpu_of.emplace(function.address, out.gpus.size());
    for (const vfio::PciFunction* virtual_one : functions)
      gpu_of.emplace(virtual_one->address, out.gpus.size());
    const bool never = rules.never_has_virtual_functions && rules.never_has_virtual_functions(function);
    VgpuGpu& added = out.gpus.emplace_back(read_gpu(scan, function, functions, never));
    added.index = static_cast<unsigned>(number);
    added.by_name = !rules.match_unnamed(function);
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
  const auto functions = virtual_functions_of(inventory, before.address());
  std::set<vfio::PciAddress> addresses = {before.address()};
  for (const vfio::PciFunction* virtual_one : functions) addresses.insert(virtual_one->address);
  const auto stuck = StuckGpus::read(host);
  if (!stuck) return fail(stuck.error());
  auto bus = read_mdev_bus(host, *stuck, &addresses);
  if (!bus) return fail(std::move(bus).error());
  VgpuGpu gpu = read_gpu({.host = host, .inventory = inventory, .stuck = *stuck, .bus = *bus}, *function,
                         functions, before.never_has_functions);
  for (VgpuDevice& device : bus->devices) gpu.devices.push_back(std::move(device));
  gpu.index = before.index;
  gpu.by_name = before.by_name;
  return gpu;
}

void scan_devices_again(const HostFs& host, const vfio::Inventory& inventory, VgpuFacts facts, VgpuGpu& gpu) {
  const std::vector<VgpuDevice> before = std::exchange(gpu.devices, {});
  gpu.framework->read_devices(host, inventory, facts, gpu);
  if (facts != VgpuFacts::identity) return;
  for (VgpuDevice& device : gpu.devices) {
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

std::map<vfio::PciAddress, std::string> kept_for_vgpus(const VgpuInventory& inventory) {
  std::map<vfio::PciAddress, std::string> out;
  for (const VgpuGpu& gpu : inventory.gpus) {
    if (!gpu.devices.empty()) {
      out[gpu.address()] = "it carries " + counted(gpu.devices.size(), "vGPU");
    } else if (gpu.framework->makes_vgpus() && !gpu.framework->binds_functions() && !gpu.offers_nothing()) {
      out[gpu.address()] = "its driver offers vGPU types";
    } else if (gpu.function.sriov_numvfs > 0 && !vfio::on_vfio_driver(gpu.function)) {
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
    // vfio/ binds and unbinds such a function by name too, and binds no GPU that has virtual functions.
    if (gpu.framework->binds_functions()) continue;
    std::map<vfio::PciAddress, std::size_t> carried;
    for (const VgpuDevice& device : gpu.devices) ++carried[device.parent];
    if (!gpu.devices.empty()) carried[gpu.address()] = gpu.devices.size();  // all its vGPUs
    const Error* const problem = gpu.problem();
    for (const auto& [carrier, count] : carried) {
      out[carrier] =
          problem != nullptr
              ? fmt::format("carries {}, and Ferry removes no vGPU of it while some cannot be read: {}",
                            counted(count, "vGPU"), problem->message)
              : fmt::format("carries {}; `{}` removes {}", counted(count, "vGPU"), removal_command(gpu, ours),
                            count == 1 ? "it" : "them");
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

vfio::UseQuestion use_question(const VgpuDevice& device) {
  return {.device = device.id.text, .nodes = device.nodes};
}

}  // namespace ferry::mdev
