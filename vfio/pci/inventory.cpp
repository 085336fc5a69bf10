// SPDX-License-Identifier: Apache-2.0
#include "vfio/pci/inventory.h"

#include <algorithm>

#include "hostfs/check_reading.h"
#include "vfio/pci/iommu_state.h"

namespace ferry::vfio {

bool AcceleratorRules::match_by_name(const PciFunction& function) const {
  const PciClass what = function.pci_class();
  if (function.is_bridge() || function.is_virtual_function()) return false;
  if (!vendors.contains(function.vendor)) return of_other_vendors.contains(what);
  return classes.contains(what) || on_request.contains(what);
}

AcceleratorRules AcceleratorRules::asking_for(PciClass asked) const {
  AcceleratorRules rules = *this;
  if (rules.on_request.erase(asked) > 0) rules.classes.insert(asked);
  return rules;
}

AcceleratorRules AcceleratorRules::asking_for_all() const {
  AcceleratorRules rules = *this;
  rules.classes.merge(rules.on_request);
  rules.on_request.clear();
  return rules;
}

const PciFunction* Inventory::find(const PciAddress& address) const {
  const auto found = functions.find(address);
  return found == functions.end() ? nullptr : &found->second;
}

std::vector<PciAddress> Inventory::group_of(const PciFunction& function) const {
  if (function.iommu_group)
    if (const auto found = groups.find(*function.iommu_group); found != groups.end()) return found->second;
  return {function.address};
}

Result<> require_iommu(const Inventory& inventory) {
  if (inventory.has_iommu()) return {};
  if (inventory.unsafe_noiommu) {
    return fail(Errc::unsupported, "vfio runs in its no-IOMMU mode, which isolates nothing",
                "unset enable_unsafe_noiommu_mode and switch the IOMMU on");
  }
  return fail(Errc::unsupported,
              inventory.only_other_groups
                  ? "no PCI function of this host is in an IOMMU group"
                  : "this host has no active IOMMU: /sys/kernel/iommu_groups is empty",
              inventory.iommu_cure);
}

bool is_accelerators_vf(const Inventory& inventory, const AcceleratorRules& rules,
                        const PciFunction& function) {
  const PciFunction* physical =
      function.physical_function ? inventory.find(*function.physical_function) : nullptr;
  return physical != nullptr && rules.match_by_name(*physical);
}

bool may_manage_switches(const PciFunction& function) {
  constexpr std::uint16_t kMellanox = 0x15b3;
  constexpr std::uint32_t kNetwork = 0x02;
  return function.vendor == kMellanox && function.class_code >> 16U == kNetwork &&
         !function.is_virtual_function();
}

bool on_vfio_driver(const PciFunction& function) {
  return function.driver && (*function.driver == "vfio-pci" || !function.vfio_devices.empty());
}

bool blocks_viability(const PciFunction& function) {
  if (!function.driver || on_vfio_driver(function) || function.leaves_dma) return false;
  return *function.driver != "pcieport" && *function.driver != "pci-stub";
}

namespace {

void add(PciFunction function, Inventory& inventory) {
  const PciAddress address = function.address;
  if (const auto group = function.iommu_group) inventory.groups[*group].push_back(address);
  inventory.functions.emplace(address, std::move(function));
}

void read_host_facts(const HostFs& host, Inventory& inventory) {
  // Names come in text order, in which the domain 10000 stands before 2000.
  for (auto& [group, members] : inventory.groups) std::sort(members.begin(), members.end());
  if (auto drivers = host.list("sys/bus/pci/drivers")) inventory.drivers = {drivers->begin(), drivers->end()};
  inventory.unsafe_noiommu =
      host.read_attribute("sys/module/vfio/parameters/enable_unsafe_noiommu_mode").value_or("N") == "Y";
  const auto has_group = [](const auto& entry) { return entry.second.iommu_group.has_value(); };
  // The AMD IOMMU's own function has no group. On a device tree each PCI host has an IOMMU of its own, or
  // none.
  const bool is_covered =
      std::ranges::all_of(inventory.functions, has_group) || !is_described_by_device_tree(host);
  if (is_covered && !inventory.groups.empty()) return;
  const IommuState state = read_iommu_state(host);
  inventory.only_other_groups = inventory.groups.empty() && state.groups && !state.groups->empty();
  inventory.iommu_cure = cure_of_inactive_iommu(state, KernelCommandLine::read(host));
}

}  // namespace

Result<Inventory> scan(const HostFs& host) {
  Inventory inventory;
  auto names = host.list("sys/bus/pci/devices");
  if (!names) {
    Error error = std::move(names).error();
    // Most often the root is a wrong folder.
    if (is_gone(error)) {
      error.hint =
          host.root() == "/"
              ? "mount sysfs at /sys; without PCI a host has no accelerators"
              : "is " + host.root().string() +
                    " the root of a host? --host-root needs the folder on which it is mounted, with its /sys";
    }
    return fail(std::move(error).during("scan PCI functions"));
  }
  for (const std::string& name : *names) {
    // The kernel puts only PCI addresses there; any other name is ignored.
    const auto address = PciAddress::parse(name);
    if (!address) continue;
    // A function that has vanished since it was listed is left out.
    if (auto function = read_function(host, *address)) add(std::move(*function), inventory);
  }
  read_host_facts(host, inventory);
  return inventory;
}

Result<Inventory> scan_members(const HostFs& host, const std::vector<std::uint32_t>& groups,
                               const std::vector<PciAddress>& functions) {
  auto inventory = scan_members_again(host, groups, functions, {});
  if (inventory) read_host_facts(host, *inventory);
  return inventory;
}

Result<Inventory> scan_members_again(const HostFs& host, const std::vector<std::uint32_t>& groups,
                                     const std::vector<PciAddress>& functions, const Inventory& before) {
  std::set<PciAddress> addresses(functions.begin(), functions.end());
  for (const std::uint32_t group : groups) {
    const auto names = names_in(host, "sys/kernel/iommu_groups/" + std::to_string(group) + "/devices");
    if (!names) return fail(names.error());
    for (const std::string& name : *names)
      if (const auto address = PciAddress::parse(name)) addresses.insert(*address);
  }
  Inventory inventory;
  inventory.unsafe_noiommu = before.unsafe_noiommu;
  for (const PciAddress& address : addresses) {
    const PciFunction* known = before.find(address);
    auto function = known != nullptr ? Result<PciFunction>(*known) : read_function(host, address);
    if (!function || (known != nullptr && !read_binding(host, *function))) continue;
    add(std::move(*function), inventory);
  }
  return inventory;
}

}  // namespace ferry::vfio
