// SPDX-License-Identifier: Apache-2.0
// Why a unit cannot move: who shares its groups, who uses its functions, what keeps them where they are.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "vfio/letting_go.h"
#include "vfio/move_members.h"
#include "vfio/release.h"

namespace ferry {

/// Gathers why a unit cannot move; the first hint counts.
class Objections {
 public:
  void add(std::string reason, const std::string& hint = {}) {
    refusal_.reasons.push_back(std::move(reason));
    if (refusal_.hint.empty()) refusal_.hint = hint;
  }
  /// A function of the group that is not part of the card: `--with` moves it along. Each is named in one
  /// hint.
  void add_stranger(const PciFunction& function);
  /// One that ends by itself when whoever uses a function lets go.
  void add_user(std::string reason, const std::string& hint) {
    ++users_;
    add(std::move(reason), hint);
  }
  bool any() const { return !refusal_.reasons.empty(); }
  /// Any that does not.
  bool lasting() const { return refusal_.reasons.size() > users_; }
  Refusal refusal(const Unit& unit, std::vector<std::uint32_t> groups) && {
    refusal_.devices = unit.accelerators;
    refusal_.groups = std::move(groups);
    if (refusal_.hint == kOfStrangers) refusal_.hint = hint_of_strangers();
    return std::move(refusal_);
  }

 private:
  static constexpr const char* kOfStrangers = "--with";  ///< the hint, until all strangers are known
  std::string hint_of_strangers() const;

  Refusal refusal_;
  std::size_t users_ = 0;
  std::vector<std::string> strangers_;    ///< addresses
  std::vector<std::string> their_kinds_;  ///< "USB", "network"
};

/// "0000:01:00.0 (10de:2684, class 0300, driver nouveau)"
std::string describe(const PciFunction& function);

/// Against a member that is in the way.
void object_to_member(const Inventory& inventory, const Unit& unit, const AcceleratorRules& rules,
                      const PciFunction& function, Objections& objections);

/// Against a function that cannot be read.
void object_to_unreadable(const PciFunction& function, Objections& objections);

/// Against moving `function`: it cannot be read, a write to it hangs (`stuck`), nobody can say who uses it,
/// or somebody does. Who holds it and may let go goes into `released`, where that is given, and is no
/// objection.
void object_to_moving(const PciFunction& function, const MoveRequest& request, const UseReport& use,
                      const std::set<std::string>& stuck, Objections& objections, Released* released);

/// Against moving `function`, or anything beside it, while a write to it hangs (`stuck`): the kernel takes a
/// function's driver away before that has let go, so that one whose unbind hangs looks like one without.
void object_to_stuck(const PciFunction& function, const std::set<std::string>& stuck, Objections& objections);

/// Against moving anything beside `function` when that cannot be read: it may well have a driver, and be
/// used.
void object_to_bystander(const PciFunction& function, Objections& objections);

/// Against moving anything of `groups` while a record of theirs cannot be read.
void object_to_unreadable_records(const MoveRecord& record, const std::vector<std::uint32_t>& groups,
                                  Objections& objections);

/// Against moving a physical function that has virtual ones: vfio-pci takes none that has, and takes them
/// away, from VMs too, when it loses one.
void object_to_virtual_functions(const PciFunction& function, Objections& objections);

}  // namespace ferry
