// SPDX-License-Identifier: Apache-2.0
// Plans the steps that bind accelerators to a vfio driver or unbind them again: pure functions of a scan.
//
// A unit is the whole IOMMU group, with the groups of a GPU's companion functions. A unit changes with all
// members that must change, or is refused with the obstacles and not written to.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "vfio/bind/driver_choice.h"
#include "vfio/bind/undo_journal.h"
#include "vfio/judgement/unit_members.h"
#include "vfio/pci/inventory.h"
#include "vfio/rebind_context.h"
#include "vfio/use_probe.h"

namespace ferry::vfio {

/// Member::driver_after of a function whose earlier driver is not recorded, or cannot be loaded.
inline constexpr const char* kKernelsChoice = "the kernel's choice";

/// The step that sets a function's override; "" clears it.
Step override_step(const PciFunction& function, const std::string& value, std::string why);

struct OverrideSteps {
  std::vector<Step> before_bind;
  std::vector<Step> after_bind;
};
/// Adds the steps that leave `function` with the override `override_after` once `driver` is bound; absent:
/// unset. The kernel refuses to bind another driver than the override names (ENODEV). An override that names
/// another driver is thus set after the bind, and is `driver` until then.
void add_override(const PciFunction& function, const std::string& driver,
                  const std::optional<std::string>& override_after, const std::string& why,
                  OverrideSteps& steps);

/// True if `steps` only set overrides, which takes no device from its user.
bool take_nothing(const std::vector<Step>& steps);

/// The bind or the unbind of a unit.
struct Rebind {
  std::vector<PciAddress> devices;  ///< the accelerators of the request
  std::vector<std::uint32_t> groups = {};
  std::vector<Member> members = {};
  std::vector<Step> steps = {};         ///< empty: nothing to do
  std::vector<std::string> notes = {};  ///< for people: facts to know although nothing is wrong
  /// The members that change drivers: all but bridges and bystanders.
  std::vector<PciAddress> rebinding() const;
  /// Those of rebinding() whose record ends with an unbind: all but the functions that are removed next.
  std::vector<PciAddress> unbound() const;
};

/// A unit that is refused and not written to.
struct Refusal {
  std::vector<PciAddress> devices;  ///< the accelerators of the request
  std::vector<std::uint32_t> groups;
  std::vector<std::string> reasons;  ///< the obstacles, each with its address
  std::string hint = {};
  /// The members that would block the groups by the kernel's viability rule after the whole request was bound
  /// to vfio. Absent: the request was no bind.
  std::optional<std::vector<PciAddress>> blockers = {};
  bool kernel_refuses = false;  ///< a reason is one of the kernel's own, whatever the blockers are
};

struct RebindPlan {
  std::vector<Rebind> rebinds;
  std::vector<Refusal> refusals;
};

struct OnVfio {
  std::string driver;
  std::optional<std::string> driver_override;  ///< absent: unset
};

/// A caller's request, and facts that the scan does not have.
struct RebindRequest {
  /// Accelerators or virtual functions of accelerators, each in the inventory and listed once.
  std::vector<PciAddress> accelerators;
  /// Accelerators that the user named: if one is gone, that is an error. Others may vanish without one.
  std::set<PciAddress> by_name = {};
  std::set<PciAddress> with;  ///< Asked::with
  std::map<PciAddress, std::string>
      untouchable;  ///< accelerators that must stay, with the reason ("carries 2 vGPUs")
  std::map<PciAddress, std::string> named_at = {};  ///< Asked::named_at
  /// Accelerators whose virtual functions will be gone by then, and so are no objection now.
  std::set<PciAddress> sheds_functions = {};
  bool recorded_only = false;  ///< unbind: only functions that Ferry has a record of
  /// Unbind: virtual functions that the caller removes next. They get no driver, and their records stay, for
  /// a bind after a failure: the caller forgets them once the functions are gone.
  std::set<PciAddress> removed_next = {};
  bool force = false;  ///< change drivers although a screen depends on it (DeviceUser::only_a_screen)
  /// Services and modules to quiesce for a bind, if nothing else uses the device: release_list().
  std::set<std::string> release = {};
  bool persistence_by_gpu = false;  ///< nvidia-persistenced can be quiesced for single GPUs
  /// A bind uses the drivers and overrides of functions that were on vfio a moment ago. All others get the
  /// driver that fits, and an override that names it.
  std::map<PciAddress, OnVfio> as_before = {};
};

/// Plans to bind `request.accelerators` to vfio. A function that another program bound to vfio is taken over
/// as it is. A function that `journal` has gets the override back that a killed unbind removed. `stuck` names
/// devices with a stuck write.
RebindPlan plan_bind(const Inventory& inventory, const AcceleratorRules& rules, const RebindRequest& request,
                     const UseReport& use, const VfioDriverTable& drivers, const UndoJournal& journal,
                     const std::set<std::string>& stuck);

/// Plans to unbind `request.accelerators`: back to the recorded drivers or, without a record, to the kernel's
/// choice. A function that another program rebound meanwhile is left alone and noted. A virtual function on
/// the driver of its physical function (vendor-specific VFIO) is home there: an unbind would end its vGPU.
RebindPlan plan_unbind(const Inventory& inventory, const AcceleratorRules& rules,
                       const RebindRequest& request, const UseReport& use, const UndoJournal& journal,
                       const std::set<std::string>& stuck);

struct Undo {
  std::vector<Step> steps;
  std::vector<std::string> notes;  ///< functions that another program has rebound
};
/// Plans the roll back after a failure for every function of `only` that the record has, in any state. A
/// function that was on vfio before Ferry, and still is, stays there, even if its unbind had begun.
Undo plan_undo(const Inventory& inventory, const UndoJournal& journal, const std::vector<PciAddress>& only);

}  // namespace ferry::vfio
