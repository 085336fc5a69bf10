// SPDX-License-Identifier: Apache-2.0
// Objections to a change of a unit's drivers: members of its groups, device users, and reasons to stay.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "vfio/bind/unit_members.h"
#include "vfio/quiesce/quiesce_plan.h"

namespace ferry::vfio {

/// Collects the objections to a unit's change; the first hint counts.
class Objections {
 public:
  void add(std::string reason, const std::string& hint = {}) {
    refusal_.reasons.push_back(std::move(reason));
    if (refusal_.hint.empty()) refusal_.hint = hint;
  }
  /// Adds a function of the group that is not part of the card. The hint names them all, for `--with`.
  void add_stranger(const PciFunction& function);
  /// Adds an objection that ends once the device user closes the function.
  void add_user(std::string reason, const std::string& hint) {
    ++users_;
    add(std::move(reason), hint);
  }
  bool any() const { return !refusal_.reasons.empty(); }
  /// True if an objection remains after all device users have closed the functions.
  bool lasting() const { return refusal_.reasons.size() > users_; }
  Refusal refusal(const Unit& unit, std::vector<std::uint32_t> groups) && {
    refusal_.devices = unit.accelerators;
    refusal_.groups = std::move(groups);
    if (refusal_.hint == kOfStrangers) refusal_.hint = hint_of_strangers();
    return std::move(refusal_);
  }

 private:
  static constexpr const char* kOfStrangers = "--with";  ///< until all strangers are known
  std::string hint_of_strangers() const;

  Refusal refusal_;
  std::size_t users_ = 0;
  std::vector<std::string> strangers_;    ///< addresses
  std::vector<std::string> their_kinds_;  ///< "USB", "network"
};

/// A function in words: "0000:01:00.0 (10de:2684, class 0300, driver nouveau)".
std::string describe(const PciFunction& function);

/// Objects to a member with the role in_the_way.
void object_to_member(const Inventory& inventory, const Unit& unit, const AcceleratorRules& rules,
                      const PciFunction& function, Objections& objections);

void object_to_unreadable(const PciFunction& function, Objections& objections);

/// Objects to a change of `function`: it cannot be read, it has a stuck write (`stuck`), or it has device
/// users or may have some. A user that may be quiesced goes to `to_quiesce`, if that is given, instead.
void object_to_rebinding(const PciFunction& function, const RebindRequest& request, const UseReport& use,
                         const std::set<std::string>& stuck, Objections& objections, QuiescePlan* to_quiesce);

/// Objects to any change in the group while a write to `function` is stuck. The kernel changes a function's
/// driver before the driver has finished, so a function whose unbind hangs looks like one without a driver,
/// and one whose bind hangs like one that is bound.
void object_to_stuck(const PciFunction& function, const std::set<std::string>& stuck, Objections& objections);

/// Objects to any change beside an unreadable `function`, which may have a driver and be in use.
void object_to_bystander(const PciFunction& function, Objections& objections);

/// Objects to any change in `groups` while one of their records cannot be read.
void object_to_unreadable_records(const UndoJournal& journal, const std::vector<std::uint32_t>& groups,
                                  Objections& objections);

/// Objects to a change of a physical function with virtual functions. vfio-pci refuses to bind to it, and
/// removes its virtual functions, even from VMs, when it is unbound.
void object_to_virtual_functions(const PciFunction& function, Objections& objections);

}  // namespace ferry::vfio
