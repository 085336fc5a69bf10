// SPDX-License-Identifier: Apache-2.0
#include "vfio/judgement/unit_facts.h"

#include <algorithm>
#include <fcntl.h>

#include <fmt/format.h>

#include "common/file_status.h"
#include "vfio/judgement/unit_members.h"
#include "vfio/pci/memory_map.h"
#include "vfio/pci/pci_resources.h"
#include "vfio/pci/vm_nodes.h"

namespace ferry::vfio {
namespace {

void read_framebuffer(const HostFs& host, const MemoryMap& map, PciFunction& function) {
  if (function.firmware_framebuffer) return;
  const auto ranges = host.read_attribute(sysfs_path(function.address) / "resource");
  if (!ranges) return;
  const PciResources resources = parse_pci_resources(*ranges);
  const bool all_read = resources.notes.empty() && !resources.bars.empty() && map.malformed == 0;
  if (const auto found = firmware_framebuffer(map, resources.bars))
    function.firmware_framebuffer = fmt::format("{} in BAR {}", found->name, found->bar);
  else if (all_read)
    function.firmware_framebuffer = "";
}

void read_regions(const HostFs& host, std::uint32_t group, Inventory& inventory) {
  const std::string path = fmt::format("sys/kernel/iommu_groups/{}/reserved_regions", group);
  const auto text = host.read_file(path);
  // Kernels before 4.11 have no such file, and refuse nothing for it.
  auto regions = text                    ? parse_reserved_regions(*text)
                 : is_gone(text.error()) ? Result<std::vector<ReservedRegion>>()
                                         : fail(Error(text.error()));
  if (regions) {
    inventory.reserved.insert_or_assign(group, std::move(*regions));
    return;
  }
  Error error = text ? std::move(regions).error().during("/" + path) : std::move(regions).error();
  if (error.code == std::errc::permission_denied) error.hint = "run as root";
  inventory.reserved_unread.insert_or_assign(group, std::move(error));
}

}  // namespace

void read_unit_facts(const HostFs& host, const AcceleratorRules& rules, Inventory& inventory) {
  std::vector<PciFunction*> judged;
  std::vector<PciAddress> accelerators;
  std::set<PciAddress> all;
  for (auto& [address, function] : inventory.functions) {
    all.insert(address);
    if (!rules.match_by_name(function) && !((on_vfio_driver(function) || rules.named.contains(address)) &&
                                            is_accelerators_vf(inventory, rules, function)))
      continue;
    judged.push_back(&function);
    accelerators.push_back(address);
  }
  if (judged.empty()) return;
  if (host.exists("dev")) {
    std::set<std::string>& nodes = inventory.vm_nodes.emplace();
    // A careless bind mount makes a directory in place of a node.
    for (const char* folder : {"dev/vfio", "dev/vfio/devices"})
      for (const DirectoryEntry& entry : host.entries(folder).value_or(std::vector<DirectoryEntry>{}))
        if (!entry.is_directory) nodes.insert(fmt::format("{}/{}", folder, entry.name));
    if (host.exists(kIommufd)) nodes.insert(kIommufd);
  }

  // A bind may take a function of the slot along, and each function of a group goes with it.
  const std::vector<Unit> units = units_of(inventory, accelerators, all);
  for (const Unit& unit : units)
    for (const std::uint32_t group : groups_of(inventory, unit.functions))
      read_regions(host, group, inventory);
  for (const Unit& unit : units) {
    for (const PciAddress& address : unit.functions) {
      if (!may_manage_switches(*inventory.find(address))) continue;
      const auto data = host.read_file(sysfs_path(address) / "vpd");
      if (data || is_gone(data.error()))
        inventory.switch_management[address] = data && data->find("SW_MNG") != std::string::npos;
    }
  }

  const auto claims = host.read_file("proc/iomem");
  if (!claims) return;
  const MemoryMap map = parse_memory_map(*claims);
  if (map.hidden() || map.claims.empty()) return;
  for (PciFunction* function : judged) read_framebuffer(host, map, *function);
}

void wake_sleepers(const HostFs& host, std::span<const PciAddress> functions, Inventory& inventory) {
  for (const PciAddress& address : functions) {
    const auto found = inventory.functions.find(address);
    if (found != inventory.functions.end() && found->second.bus == BusLook::asleep) wake(host, found->second);
  }
}

std::set<std::string> stuck_functions(std::span<const StuckWrite> writes, const Inventory& inventory) {
  std::set<std::string> out;
  for (const StuckWrite& write : writes) {
    if (is_read(write)) continue;
    for (const auto& [address, function] : inventory.functions)
      if (const std::string name = address.text(); concerns(write, name)) out.insert(name);
  }
  return out;
}

std::uint64_t binding_of(const HostFs& host, const PciAddress& function) {
  const auto link = host.open(sysfs_path(function) / "driver", O_PATH | O_NOFOLLOW);
  const auto status = link ? file_status(link->get()) : std::nullopt;
  return status ? status->st_ino : 0;
}

void BusMemory::look(const HostFs& host, std::span<const PciAddress> functions, Inventory& inventory) {
  for (const PciAddress& address : functions) {
    const auto found = inventory.functions.find(address);
    if (found == inventory.functions.end()) continue;
    PciFunction& function = found->second;
    if (function.bus != BusLook::asleep) {
      seen_.erase(address);
      continue;
    }
    const std::uint64_t binding = binding_of(host, address);
    auto known = seen_.find(address);
    if (known == seen_.end() || known->second.ids != function.ids() || known->second.binding != binding) {
      const bool readable = !function.problem;
      wake(host, function);
      if (function.bus == BusLook::asleep) continue;  // its folder could not be opened
      known = seen_.insert_or_assign(address, Seen{function.ids(), binding, function.bus, {}}).first;
      if (readable) known->second.problem = function.problem;
      continue;
    }
    function.bus = known->second.bus;
    if (!function.problem) function.problem = known->second.problem;
  }
}

void BusMemory::doubt() {
  std::erase_if(seen_, [](const auto& entry) { return !entry.second.problem; });
}

}  // namespace ferry::vfio
