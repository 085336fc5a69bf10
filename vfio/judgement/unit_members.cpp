// SPDX-License-Identifier: Apache-2.0
#include "vfio/judgement/unit_members.h"

#include <algorithm>
#include <cstddef>
#include <map>

#include "common/text/words.h"

namespace ferry::vfio {

std::string_view text(MemberRole role) {
  constexpr Words<MemberRole, 6> kWords = {{{"accelerator", MemberRole::accelerator},
                                            {"companion", MemberRole::companion},
                                            {"taken along", MemberRole::taken_along},
                                            {"bridge", MemberRole::bridge},
                                            {"bystander", MemberRole::bystander},
                                            {"in the way", MemberRole::in_the_way}}};
  return word_for(kWords, role, "unknown");
}

// A virtual function is a unit of its own, though it may look like one more function of its card.
bool shares_slot(const PciFunction& accelerator, const PciFunction& function) {
  if (function.address == accelerator.address || function.is_bridge()) return false;
  if (function.is_virtual_function() || accelerator.is_virtual_function()) return false;
  return function.address.same_slot(accelerator.address);
}

namespace {

// The functions that a card has beside its accelerator: audio, USB and UCSI.
bool is_of_a_cards_class(const PciFunction& function) {
  const PciClass what = function.pci_class();
  return what == PciClass::audio || what == PciClass::usb || what == PciClass::serial_bus_other;
}

}  // namespace

bool is_companion(const PciFunction& accelerator, const PciFunction& function) {
  if (!shares_slot(accelerator, function) || !is_of_a_cards_class(function)) return false;
  return function.vendor == accelerator.vendor ||
         std::ranges::count(accelerator.consumers, function.address) > 0;
}

bool may_be_of_the_card(const PciFunction& accelerator, const PciFunction& function) {
  if (!is_of_a_cards_class(function)) return false;
  const bool own_slot = function.vendor == accelerator.vendor && function.address.function == 0;
  return shares_slot(accelerator, function) || (own_slot && function.address != accelerator.address);
}

namespace {

// Stricter than the kernel's rule: a driver that leaves DMA to VFIO still uses its function, which a VM with
// another function of the group may reset.
bool is_the_hosts(const PciFunction& function) {
  return blocks_viability(function) || function.leaves_dma;
}

}  // namespace

std::vector<Unit> units_of(const Inventory& inventory, const std::vector<PciAddress>& accelerators,
                           const std::set<PciAddress>& with) {
  std::vector<Unit> units;
  std::map<PciAddress, std::size_t> unit_of;  // by function
  for (const PciAddress& address : accelerators) {
    // The groups of the accelerator, and of the functions in its slot that go with it. Addresses are in
    // order, so those of a slot stand together.
    const PciFunction& accelerator = *inventory.find(address);
    const auto group = inventory.group_of(accelerator);
    Unit unit{.accelerators = {address}, .functions = {group.begin(), group.end()}};
    PciAddress at = address;
    at.function = 0;
    for (auto entry = inventory.functions.lower_bound(at);
         entry != inventory.functions.end() && entry->first.same_slot(at); ++entry) {
      const PciFunction& function = entry->second;
      const bool goes_along = with.contains(entry->first) &&
                              (on_vfio_driver(function) || may_be_of_the_card(accelerator, function));
      if (!goes_along && !is_companion(accelerator, function)) continue;
      const auto members = inventory.group_of(function);
      unit.functions.insert(members.begin(), members.end());
    }

    for (const PciAddress& function : std::set<PciAddress>(unit.functions)) {
      const auto known = unit_of.find(function);
      if (known == unit_of.end() || units[known->second].accelerators.empty()) continue;
      Unit& other = units[known->second];
      unit.functions.merge(other.functions);
      unit.accelerators.insert(unit.accelerators.end(), other.accelerators.begin(), other.accelerators.end());
      other = {};
    }
    std::ranges::sort(unit.accelerators);
    for (const PciAddress& function : unit.functions) unit_of[function] = units.size();
    units.push_back(std::move(unit));
  }
  std::erase_if(units, [](const Unit& unit) { return unit.accelerators.empty(); });
  return units;
}

std::vector<std::uint32_t> groups_of(const Inventory& inventory, const std::set<PciAddress>& functions) {
  std::set<std::uint32_t> groups;
  for (const PciAddress& address : functions)
    if (const auto group = inventory.find(address)->iommu_group) groups.insert(*group);
  return {groups.begin(), groups.end()};
}

namespace {

MemberRole role_in(const Inventory& inventory, const Unit& unit, const std::set<PciAddress>& with,
                   const AcceleratorRules& rules, const PciFunction& function) {
  if (function.is_bridge()) return is_the_hosts(function) ? MemberRole::in_the_way : MemberRole::bridge;
  if (std::ranges::count(unit.accelerators, function.address) > 0) return MemberRole::accelerator;
  const auto any_has = [&](bool (*has)(const PciFunction&, const PciFunction&)) {
    return std::ranges::any_of(unit.accelerators,
                               [&](const PciAddress& a) { return has(*inventory.find(a), function); });
  };
  if (any_has(is_companion) && !rules.match(function)) return MemberRole::companion;
  // A former version took along any function; what is on vfio by its journal goes back with its GPU.
  if (with.contains(function.address) && (on_vfio_driver(function) || any_has(may_be_of_the_card)))
    return MemberRole::taken_along;
  return is_the_hosts(function) ? MemberRole::in_the_way : MemberRole::bystander;
}

}  // namespace

Member member_of(const Inventory& inventory, const Unit& unit, const std::set<PciAddress>& with,
                 const AcceleratorRules& rules, const PciFunction& function) {
  return {.address = function.address,
          .role = role_in(inventory, unit, with, rules, function),
          .driver_before = function.driver.value_or(""),
          .driver_after = function.driver.value_or("")};
}

bool changes_driver(MemberRole role) {
  return role == MemberRole::accelerator || role == MemberRole::companion || role == MemberRole::taken_along;
}

std::vector<PciAddress> concerned(const Inventory& inventory, const std::vector<PciAddress>& accelerators,
                                  const std::set<PciAddress>& with) {
  std::set<PciAddress> all;
  for (const Unit& unit : units_of(inventory, accelerators, with)) {
    for (const PciAddress& address : unit.functions)
      if (!inventory.find(address)->is_bridge()) all.insert(address);
  }
  return {all.begin(), all.end()};
}

std::vector<PciAddress> viability_blockers(const Inventory& inventory, std::uint32_t group) {
  std::vector<PciAddress> out;
  const auto found = inventory.groups.find(group);
  if (found == inventory.groups.end()) return out;
  for (const PciAddress& address : found->second)
    if (blocks_viability(*inventory.find(address))) out.push_back(address);
  return out;
}

}  // namespace ferry::vfio
