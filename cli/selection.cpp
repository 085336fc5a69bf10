// SPDX-License-Identifier: Apache-2.0
#include "cli/selection.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "common/suggest.h"
#include "vfio/left_behind.h"
#include "vfio/move_members.h"

namespace ferry {
namespace {

std::vector<PciAddress> accelerators(const Inventory& inventory, const AcceleratorRules& rules) {
  std::vector<PciAddress> out;
  for (const auto& [address, function] : inventory.functions) {
    if (rules.match(function)) out.push_back(address);
  }
  return out;
}

/// `sensible`: the addresses to suggest. Any address of a host is similar to any other.
Result<PciAddress> existing(const std::string& text, const Inventory& inventory,
                            const std::vector<PciAddress>& sensible) {
  auto address = PciAddress::parse(text);
  if (!address) return address;
  if (inventory.find(*address) != nullptr) return address;
  std::vector<std::string> known;
  known.reserve(sensible.size());
  for (const PciAddress& other : sensible) known.push_back(other.text());
  return fail(Errc::not_found,
              fmt::format("there is no PCI function {} on this host{}", address->text(),
                          did_you_mean(address->text(), known)),
              "`ferry status` lists the accelerators");
}

// The address itself if it is an accelerator or a VF of one, else the accelerator of a companion function.
// The address of one that counts only on request is that request, so `rules` then count it.
Result<PciAddress> accelerator_of(const PciAddress& address, const Inventory& inventory,
                                  AcceleratorRules& rules) {
  const PciFunction& function = *inventory.find(address);
  if (auto asked = rules.asking_for(function.pci_class()); asked.match(function)) {
    rules = std::move(asked);
    return address;
  }
  if (rules.match_by_name(function)) {
    rules.named.insert(address);
    return address;
  }
  if (is_accelerators_vf(inventory, rules, function)) return address;
  if (function.physical_function) {
    return fail(Errc::usage,
                fmt::format("{} is a virtual function of {}, which is no accelerator", address.text(),
                            function.physical_function->text()),
                "`ferry status` lists the accelerators");
  }
  for (const PciAddress& accelerator : accelerators(inventory, rules)) {
    if (is_companion(*inventory.find(accelerator), function)) return accelerator;
  }
  return fail(Errc::usage,
              fmt::format("{} is no accelerator ({}, class {:04x}{})", address.text(), function.ids(),
                          function.class_code >> 8U, function.driver ? ", driver " + *function.driver : ""),
              "`ferry status` lists the accelerators; --with takes a foreign member of a group along");
}

void add(std::vector<PciAddress>& into, const PciAddress& address) {
  if (std::find(into.begin(), into.end(), address) == into.end()) into.push_back(address);
}

// True: no option but --all is given.
bool leaves_nothing_out(const SelectionOptions& options) {
  return options.devices.empty() && options.groups.empty() && options.with.empty() &&
         options.filter.first().empty();
}

// An empty selection changes nothing, so its --with is no error.
Result<> each_shares_a_group(const Inventory& inventory, const MoveRequest& request) {
  if (request.accelerators.empty()) return {};
  const auto reached = concerned(inventory, request.accelerators, request.with);
  for (const PciAddress& address : request.with) {
    if (std::find(reached.begin(), reached.end(), address) != reached.end()) continue;
    return fail(
        Errc::usage,
        fmt::format("--with: {} shares no IOMMU group and no slot with what is chosen", address.text()),
        "leave it out, or choose the accelerator that it shares a group or a slot with");
  }
  return {};
}

}  // namespace

Result<ChosenUnits> select(const SelectionOptions& options, const Inventory& inventory,
                           const AcceleratorRules& rules, const VgpuInventory& vgpus,
                           const MoveRecord& record, DeviceNames& names, Direction direction) {
  ChosenUnits out;
  const bool named = !options.devices.empty() || !options.groups.empty();
  const std::string wide = options.all ? "--all" : options.filter.first();
  if (named == !wide.empty()) {
    return fail(
        Errc::usage, named ? wide + " goes without --device and --group" : "no device is named",
        "name accelerators with --device ADDRESS or --group N, or choose among all of them with --vendor, "
        "--class, --model or --numa, or take --all");
  }
  const auto filter = AcceleratorFilter::parse(options.filter);
  if (!filter) return fail(filter.error());
  out.rules = filter->asked(rules);
  if (!named) {
    const auto chosen = filter->choose(inventory, out.rules, names);
    if (!chosen) return fail(chosen.error());
    const auto kept =
        direction == Direction::to_vfio ? kept_for_vgpus(vgpus) : std::map<PciAddress, std::string>{};
    const auto half_way = recorded_accelerators(inventory, out.rules, record);
    const auto can_go_back = [&](const PciAddress& address) {
      return on_vfio_driver(*inventory.find(address)) ||
             std::find(half_way.begin(), half_way.end(), address) != half_way.end();
    };
    for (const PciAddress& address : *chosen) {
      if (const auto found = kept.find(address); found != kept.end()) {
        out.left_alone.insert(*found);
      } else if (direction == Direction::to_vfio || can_go_back(address)) {
        out.request.accelerators.push_back(address);
      }
    }
    if (direction == Direction::back && options.all && options.filter.first().empty()) {
      for (const PciAddress& address : half_way) {
        // A virtual function must be named. Other functions have lost the accelerator that stood for them.
        if (!inventory.find(address)->is_virtual_function()) add(out.request.accelerators, address);
      }
    }
  }
  for (const std::string& text : options.devices) {
    auto address = existing(text, inventory, accelerators(inventory, out.rules));
    if (!address) return fail(std::move(address).error());
    auto accelerator = accelerator_of(*address, inventory, out.rules);
    if (!accelerator && direction == Direction::back && record.members.contains(*address))
      accelerator = *address;
    if (!accelerator) return fail(std::move(accelerator).error());
    add(out.request.accelerators, *accelerator);
    out.request.by_name.insert(*accelerator);
  }
  for (const std::uint32_t group : options.groups) {
    const auto members = inventory.groups.find(group);
    if (members == inventory.groups.end()) {
      return fail(Errc::not_found, fmt::format("there is no IOMMU group {} on this host", group),
                  "`ferry status` lists the groups of the accelerators");
    }
    bool any = false;
    std::string hint = "`ferry status` lists the groups of the accelerators";
    for (const PciAddress& address : members->second) {
      const PciFunction& function = *inventory.find(address);
      if (rules.match(function)) {
        add(out.request.accelerators, address);
        any = true;
      } else if (rules.match_by_name(function) || is_accelerators_vf(inventory, rules, function)) {
        hint =
            fmt::format("{} is only taken when it is asked for: --device {}", address.text(), address.text());
      }
    }
    if (!any) {
      return fail(Errc::usage,
                  fmt::format("group {} has no accelerator: {}", group, members->second.front().text()),
                  std::move(hint));
    }
  }
  out.request.force = options.force;
  auto release = release_list(options.release);
  if (!release) return fail(std::move(release).error().during("--release"));
  out.request.release = std::move(*release);
  for (const std::string& text : options.with) {
    auto address = existing(text, inventory, {});
    if (!address) return fail(std::move(address).error().during("--with"));
    out.request.with.insert(*address);
  }
  // An accelerator that is back on its driver is not selected by --all, so --with may lack its partner.
  if (named || direction == Direction::to_vfio) {
    auto meant = each_shares_a_group(inventory, out.request);
    if (!meant) return fail(std::move(meant).error());
  }
  out.request.untouchable = carriers_of_vgpus(vgpus);
  return out;
}

Result<ChosenUnits> select_recorded(const SelectionOptions& options, const Inventory& inventory,
                                    const AcceleratorRules& rules, const MoveRecord& record,
                                    DeviceNames& names) {
  ChosenUnits out;
  out.rules = rules.asking_for_all();  // moved on request, and restored without one
  for (const auto& [address, prior] : record.members) out.rules.named.insert(address);
  const auto recorded = recorded_accelerators(inventory, out.rules, record);
  out.request.accelerators = recorded;
  if (!leaves_nothing_out(options)) {
    auto chosen = select(options, inventory, out.rules, VgpuInventory{}, record, names, Direction::back);
    if (!chosen) return chosen;
    out.request = std::move(chosen->request);
    if (options.devices.empty() && options.groups.empty()) {
      std::erase_if(out.request.accelerators, [&](const PciAddress& address) {
        return std::ranges::find(recorded, address) == recorded.end();
      });
    }
  }
  out.request.recorded_only = true;
  return out;
}

std::vector<PciAddress> recorded_accelerators(const Inventory& inventory, const AcceleratorRules& rules,
                                              const MoveRecord& record) {
  std::vector<PciAddress> out;
  for (const PciAddress& accelerator : accelerators(inventory, rules)) {
    const auto unit = concerned(inventory, {accelerator}, record.gone_along());
    if (std::any_of(unit.begin(), unit.end(),
                    [&](const PciAddress& a) { return record.speaks_of(*inventory.find(a)); })) {
      out.push_back(accelerator);
    }
  }
  for (const auto& [address, prior] : record.members) {
    const PciFunction* function = inventory.find(address);
    if (function != nullptr && is_accelerators_vf(inventory, rules, *function)) add(out, address);
  }
  for (const PciAddress& address : left_behind(inventory, rules, record)) add(out, address);
  return out;
}

}  // namespace ferry
