// SPDX-License-Identifier: Apache-2.0
#include "vfio/bind/objections.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/text/text.h"

namespace ferry::vfio {
namespace {

constexpr const char* kDisableThem =
    "disable the virtual functions first: a physical function that has some does not change its driver";

// Objects to the physical function or a virtual function of a requested accelerator, in the same group.
bool object_to_sriov_kin(const Inventory& inventory, const Unit& unit, const PciFunction& function,
                         Objections& objections) {
  for (const PciAddress& asked : unit.accelerators) {
    if (inventory.find(asked)->physical_function == function.address) {
      objections.add(
          fmt::format("{} is the physical function of {} and shares its group", describe(function),
                      asked.text()),
          "ACS in the firmware, or another slot, may give each virtual function a group of its own");
      return true;
    }
    if (function.physical_function == asked) {
      objections.add(fmt::format("{} is a virtual function of {} and shares its group", describe(function),
                                 asked.text()),
                     kDisableThem);
      return true;
    }
  }
  return false;
}

}  // namespace

void Objections::add_stranger(const PciFunction& function) {
  strangers_.push_back(function.address.text());
  their_kinds_.push_back(kind_of(function));
  add(fmt::format("{} shares the group and is not part of the card", describe(function)), kOfStrangers);
}

std::string Objections::hint_of_strangers() const {
  const std::string with =
      strangers_.size() == 1
          ? fmt::format("--with {} binds that device too", strangers_.front())
          : fmt::format("`--with {}` binds these devices too ({}), and the host loses them",
                        fmt::join(strangers_, " --with "), fmt::join(their_kinds_, ", "));
  return "another slot, or ACS and SR-IOV in the firmware, may give the card a group of its own; " + with;
}

std::string describe(const PciFunction& function) {
  return fmt::format("{} ({}, class {:04x}, {})", function.address.text(), function.ids(),
                     function.class_code >> 8U, function.driver ? "driver " + *function.driver : "no driver");
}

void object_to_member(const Inventory& inventory, const Unit& unit, const AcceleratorRules& rules,
                      const PciFunction& function, Objections& objections) {
  if (object_to_sriov_kin(inventory, unit, function, objections)) return;
  if (rules.match(function) || is_accelerators_vf(inventory, rules, function)) {
    objections.add(
        fmt::format("{} is another accelerator of the same group and was not asked for", describe(function)),
        fmt::format("name it too: --device {}", function.address.text()));
  } else if (function.is_bridge() || function.pci_class() == PciClass::host_bridge) {
    objections.add(fmt::format("the group is blocked by the driver of bridge {}", describe(function)));
  } else {
    objections.add_stranger(function);
  }
}

void object_to_unreadable(const PciFunction& function, Objections& objections) {
  if (!function.problem) return;
  objections.add(fmt::format("{} cannot be read: {}", function.address.text(), function.problem->message),
                 function.problem->hint);
}

void object_to_rebinding(const PciFunction& function, const RebindRequest& request, const UseReport& use,
                         const std::set<std::string>& stuck, Objections& objections,
                         QuiescePlan* to_quiesce) {
  const std::string name = function.address.text();
  object_to_unreadable(function, objections);
  object_to_stuck(function, stuck, objections);
  if (const auto why = use.blind_to(name); !why.empty()) {
    objections.add(fmt::format("Ferry cannot find out whether {} is in use: {}", name, why),
                   "run as root in the host's PID namespace, with the capabilities that SECURITY.md names");
  }
  for (const DeviceUser& user : use.of(name)) {
    if (request.force && user.only_a_screen()) continue;
    if (const auto may = may_release(user, request.release); to_quiesce != nullptr && may) {
      to_quiesce->add(*may, user, function.address);
      continue;
    }
    objections.add_user(fmt::format("{} is in use: {}", name, user.text()),
                        to_quiesce != nullptr ? remedy_by_release(user) : std::string(user.remedy()));
  }
}

void object_to_stuck(const PciFunction& function, const std::set<std::string>& stuck,
                     Objections& objections) {
  if (!stuck.contains(function.address.text())) return;
  objections.add(
      fmt::format("an earlier write to {} has not returned from the kernel", function.address.text()),
      "see /run/ferry/stuck-writes; if it never returns, only a reboot helps");
}

void object_to_bystander(const PciFunction& function, Objections& objections) {
  if (!function.problem) return;
  objections.add(fmt::format("{} shares the group and cannot be read: {}", function.address.text(),
                             function.problem->message),
                 function.problem->hint);
}

void object_to_unreadable_records(const UndoJournal& journal, const std::vector<std::uint32_t>& groups,
                                  Objections& objections) {
  for (const std::uint32_t group : groups) {
    const auto found = journal.unreadable.find(group);
    if (found != journal.unreadable.end()) objections.add(found->second.message, found->second.hint);
  }
}

void object_to_virtual_functions(const PciFunction& function, Objections& objections) {
  if (function.sriov_numvfs == 0) return;
  objections.add(fmt::format("{} has {} enabled", function.address.text(),
                             counted(function.sriov_numvfs, "virtual function")),
                 kDisableThem);
}

}  // namespace ferry::vfio
