// SPDX-License-Identifier: Apache-2.0
// What would be done to move accelerators to a vfio driver, or back: pure functions from a scan to steps.
//
// The unit is the whole IOMMU group, with the groups that a GPU's companion functions sit in: a unit is moved
// with all that must move, or refused with who stands in the way and not written to at all.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "vfio/driver_choice.h"
#include "vfio/inventory.h"
#include "vfio/move_record.h"
#include "vfio/release.h"
#include "vfio/use_probe.h"

namespace ferry {

/// What a member of a unit is to the move.
enum class MemberRole {
  accelerator,  ///< asked for, a virtual function of one perhaps: moves
  companion,    ///< function of an asked accelerator's card, or linked to it: moves
  taken_along,  ///< foreign, named by --with: moves
  bridge,       ///< PCI bridge or port: left alone, never blocks
  bystander,    ///< foreign without a driver, or on a vfio driver already: left alone, does not block
  in_the_way,   ///< anything else: the unit cannot be moved
};
std::string_view text(MemberRole role);

/// Member::driver_after of a function that goes back with no record: nobody knows its earlier driver.
inline constexpr const char* kKernelsChoice = "the kernel's choice";

struct Member {
  PciAddress address;
  MemberRole role = MemberRole::in_the_way;
  std::string driver_before;  ///< empty: none
  std::string driver_after;   ///< empty: none; the same as before for what is left alone
};

/// One write, or one order to what holds devices without using them. `value` is a module, an override (""
/// clears it) or a driver, by kind.
struct Step {
  enum class Kind { let_go, load_module, set_override, unbind, bind, probe, take_hold };
  Kind kind = Kind::bind;
  PciAddress address;  ///< of load_module: whose driver it brings, where one is in need of it; else as said
  std::string value;
  std::string why;
  Releasable holder = {};  ///< who lets go or takes hold again; of no meaning for the other kinds
  /// "unbind 0000:01:00.1 from snd_hda_intel"
  std::string text() const;
  bool of_a_holder() const { return kind == Kind::let_go || kind == Kind::take_hold; }
  bool of_a_function() const { return kind != Kind::load_module && !of_a_holder(); }
  bool operator==(const Step&) const = default;
};

/// Sets a function's override; "" clears it.
Step override_step(const PciFunction& function, const std::string& value, std::string why);

/// The steps that leave a function with an override, around those that bind it.
struct OverrideSteps {
  std::vector<Step> before_bind;
  std::vector<Step> after_bind;
};
/// Leaves `function` with the override `wanted` once `driver` is bound; absent: unset. The kernel refuses to
/// bind any other driver than the one that an override names (ENODEV), so an override that names another
/// driver is set after the bind, and `driver` until then.
void add_override(const PciFunction& function, const std::string& driver,
                  const std::optional<std::string>& wanted, const std::string& why, OverrideSteps& steps);

/// Whether `steps` take nothing from anybody: they set overrides alone.
bool take_nothing(const std::vector<Step>& steps);

/// A unit that moves.
struct Move {
  std::vector<PciAddress> devices;  ///< the accelerators asked for
  std::vector<std::uint32_t> groups;
  std::vector<Member> members;
  std::vector<Step> steps;         ///< empty: already so
  std::vector<std::string> notes;  ///< for people: what to know although nothing is wrong
  /// The members that the move is about: all but bridges and bystanders.
  std::vector<PciAddress> moving() const;
};

/// A unit that is not written to.
struct Refusal {
  std::vector<PciAddress> devices;  ///< the accelerators asked for
  std::vector<std::uint32_t> groups;
  std::vector<std::string> reasons;  ///< who or what stands in the way, each with its address
  std::string hint;
  /// By the kernel's own rule, who would keep a VM from having the groups if all that was asked for were on
  /// vfio. Absent: nothing was asked to go there.
  std::optional<std::vector<PciAddress>> blockers = {};
};

struct MovePlan {
  std::vector<Move> moves;
  std::vector<Refusal> refusals;
};

/// What a function had on vfio.
struct OnVfio {
  std::string driver;
  std::optional<std::string> driver_override;  ///< absent: unset
};

/// What a caller asks for, and what is known beside the scan.
struct MoveRequest {
  /// In the inventory, each once: they match the rules, or are virtual functions of what does.
  std::vector<PciAddress> accelerators;
  /// Those of them that the user named: one that is gone is a mistake, where another is just no longer there.
  std::set<PciAddress> by_name = {};
  std::set<PciAddress> with;  ///< foreign members that may be moved too
  std::map<PciAddress, std::string>
      untouchable;  ///< accelerators that must stay, and why ("carries 2 vGPUs")
  /// Those that will have no virtual functions by then: that they have some now is no objection.
  std::set<PciAddress> sheds_functions = {};
  bool recorded_only = false;  ///< going back: only what Ferry has a record of moving
  bool force = false;          ///< move it though a screen depends on it (Holder::only_a_screen)
  /// Services and modules that let go for the move to vfio when nothing else holds the device
  /// (release_list()), and take hold again after it.
  std::set<std::string> release = {};
  bool persistence_by_gpu = false;  ///< nvidia-persistenced can be asked to let go of single GPUs
  /// To vfio: what those get that were there a moment ago. All others the driver that fits, and an override
  /// that names it.
  std::map<PciAddress, OnVfio> as_before = {};
};

/// The questions to put to a UseProbe before `addresses` may move: every device node below each function, and
/// its group's node. Nodes are found through the sysfs `dev` files, so they need no name.
std::vector<UseQuestion> use_questions(const HostFs& host, const Inventory& inventory,
                                       const std::vector<PciAddress>& addresses);

/// Every function in the groups of `accelerators`, of their companions and of the functions of `with` in
/// their slots, bridges left out: their use decides about a change.
std::vector<PciAddress> concerned(const Inventory& inventory, const std::vector<PciAddress>& accelerators,
                                  const std::set<PciAddress>& with = {});

/// Moves `request.accelerators` to vfio. What somebody else has put there is taken over as it is; what
/// `record` says that Ferry has, is given the override that a killed unbind has taken from it. `stuck` names
/// devices that a write in the kernel still holds.
MovePlan plan_bind(const Inventory& inventory, const AcceleratorRules& rules, const MoveRequest& request,
                   const UseReport& use, const VfioDriverTable& drivers, const MoveRecord& record,
                   const std::set<std::string>& stuck);

/// Takes `request.accelerators` back to what the record says they had, or without a record to the host's
/// natural drivers. What somebody else moved meanwhile is left alone and noted.
MovePlan plan_unbind(const Inventory& inventory, const AcceleratorRules& rules, const MoveRequest& request,
                     const UseReport& use, const MoveRecord& record, const std::set<std::string>& stuck);

struct Undo {
  std::vector<Step> steps;
  std::vector<std::string> notes;  ///< what is left where somebody else has put it
};
/// The way back after a failure: every function of `only` that the record knows, whatever state it is in.
/// What was on vfio before Ferry, and is, stays there: that its way back was once begun is no reason to take
/// it.
Undo plan_undo(const Inventory& inventory, const MoveRecord& record, const std::vector<PciAddress>& only);

/// The kernel's own rule for whether VFIO may own a group, from drivers alone: the members that block it.
/// Every member is driverless, on a vfio driver, or on a driver that manages DMA itself (pcieport, pci-stub,
/// NVIDIA's for vGPU hosts): blocks_viability().
std::vector<PciAddress> viability_blockers(const Inventory& inventory, std::uint32_t group);

}  // namespace ferry
