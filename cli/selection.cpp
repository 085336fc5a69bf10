// SPDX-License-Identifier: Apache-2.0
#include "cli/selection.h"

#include <algorithm>

#include <fmt/format.h>

#include "common/suggest.h"

namespace ferry {
namespace {

std::vector<PciAddress> accelerators(const Inventory& inventory, const AcceleratorRules& rules) {
  std::vector<PciAddress> out;
  for (const auto& [address, function] : inventory.functions) {
    if (rules.match(function)) out.push_back(address);
  }
  return out;
}

Result<PciAddress> existing(const std::string& text, const Inventory& inventory) {
  auto address = PciAddress::parse(text);
  if (!address) return address;
  if (inventory.find(*address) != nullptr) return address;
  std::vector<std::string> known;
  known.reserve(inventory.functions.size());
  for (const auto& [other, function] : inventory.functions) known.push_back(other.text());
  return fail(Errc::not_found,
              fmt::format("there is no PCI function {} on this host{}", address->text(),
                          did_you_mean(address->text(), known)),
              "`ferry status` lists the accelerators");
}

// The accelerator itself, or the one that this function is a companion of.
Result<PciAddress> accelerator_of(const PciAddress& address, const Inventory& inventory,
                                  const AcceleratorRules& rules) {
  const PciFunction& function = *inventory.find(address);
  if (rules.match(function)) return address;
  if (function.physical_function) {
    return fail(
        Errc::usage,
        fmt::format("{} is a virtual function of {}", address.text(), function.physical_function->text()),
        "virtual functions carry vGPUs: see `ferry vgpu`");
  }
  for (const PciAddress& accelerator : accelerators(inventory, rules)) {
    if (accelerator.same_slot(address) && !function.is_bridge()) return accelerator;
  }
  return fail(Errc::usage,
              fmt::format("{} is no accelerator ({}, class {:04x}{})", address.text(), function.ids(),
                          function.class_code >> 8U, function.driver ? ", driver " + *function.driver : ""),
              "`ferry status` lists the accelerators; --with takes a foreign member of a group along");
}

void add(std::vector<PciAddress>& into, const PciAddress& address) {
  if (std::find(into.begin(), into.end(), address) == into.end()) into.push_back(address);
}

}  // namespace

Result<Selection> select(const SelectionOptions& options, const Inventory& inventory,
                         const AcceleratorRules& rules, const VgpuInventory& vgpus, Direction direction) {
  Selection out;
  if (options.all == (!options.devices.empty() || !options.groups.empty())) {
    return fail(Errc::usage, options.all ? "--all goes without --device and --group" : "no device is named",
                "name accelerators with --device ADDRESS or --group N, or take --all");
  }
  if (options.all) {
    const auto kept =
        direction == Direction::to_vfio ? kept_for_vgpus(vgpus) : std::map<PciAddress, std::string>{};
    for (const PciAddress& address : accelerators(inventory, rules)) {
      if (const auto found = kept.find(address); found != kept.end()) {
        out.left_alone.insert(*found);
      } else if (direction == Direction::to_vfio || on_vfio_driver(*inventory.find(address))) {
        out.request.accelerators.push_back(address);
      }
    }
  }
  for (const std::string& text : options.devices) {
    auto address = existing(text, inventory);
    if (!address) return fail(std::move(address).error());
    auto accelerator = accelerator_of(*address, inventory, rules);
    if (!accelerator) return fail(std::move(accelerator).error());
    add(out.request.accelerators, *accelerator);
  }
  for (const std::uint32_t group : options.groups) {
    const auto members = inventory.groups.find(group);
    if (members == inventory.groups.end()) {
      return fail(Errc::not_found, fmt::format("there is no IOMMU group {} on this host", group),
                  "`ferry status` lists the groups of the accelerators");
    }
    bool any = false;
    for (const PciAddress& address : members->second) {
      if (!rules.match(*inventory.find(address))) continue;
      add(out.request.accelerators, address);
      any = true;
    }
    if (!any) {
      return fail(Errc::usage,
                  fmt::format("group {} has no accelerator: {}", group, members->second.front().text()),
                  "`ferry status` lists the groups of the accelerators");
    }
  }
  for (const std::string& text : options.with) {
    auto address = existing(text, inventory);
    if (!address) return fail(std::move(address).error().during("--with"));
    out.request.with.insert(*address);
  }
  for (const VgpuGpu& gpu : vgpus.gpus) {
    if (!gpu.devices.empty()) {
      out.request.untouchable[gpu.address()] =
          fmt::format("carries {} vGPU{}; `ferry vgpu delete --device {}` takes them away",
                      gpu.devices.size(), gpu.devices.size() == 1 ? "" : "s", gpu.address().text());
    }
  }
  return out;
}

std::vector<PciAddress> recorded_accelerators(const Inventory& inventory, const AcceleratorRules& rules,
                                              const MoveRecord& record) {
  std::vector<PciAddress> out;
  for (const PciAddress& accelerator : accelerators(inventory, rules)) {
    const auto unit = concerned(inventory, {accelerator});
    if (std::any_of(unit.begin(), unit.end(),
                    [&](const PciAddress& a) { return record.members.contains(a); })) {
      out.push_back(accelerator);
    }
  }
  return out;
}

}  // namespace ferry
