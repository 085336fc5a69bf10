// SPDX-License-Identifier: Apache-2.0
// Plans an unbind, on request or to roll back a failed bind.
#include <algorithm>

#include <fmt/format.h>

#include "common/text/text.h"
#include "vfio/bind/driver_modules.h"
#include "vfio/bind/objections.h"
#include "vfio/bind/rebind_plan.h"
#include "vfio/judgement/judge.h"

namespace ferry::vfio {
namespace {

/// The state to which a function returns. A function that was on vfio before Ferry is recorded only from the
/// first write of its unbind on.
struct Home {
  const PciFunction* function = nullptr;
  /// On a vfio driver from which an unbind takes it; false for a virtual function on its physical function's
  /// driver.
  bool on_vfio = false;
  bool known = false;
  PriorState prior;
  bool lost = false;  ///< the driver is not loaded and cannot be: UndoJournal::lost
  bool kernel_chooses() const { return !known || prior.kernels_choice; }
  /// It had no driver before its bind. In the end the kernel gives it one that was loaded since.
  bool probed = false;
  /// The unbind of a function whose driver the kernel chooses has begun and not ended.
  bool in_between() const { return known && prior.kernels_choice && !function->driver; }
};

// True if the function is neither on vfio nor on its earlier driver: another program has rebound it.
bool in_other_hands(const Home& home) {
  const PciFunction& function = *home.function;
  return !home.kernel_chooses() && function.driver && function.driver != home.prior.driver && !home.on_vfio;
}

// True for the name of any vfio driver, also one that is not loaded.
bool names_vfio(const std::optional<std::string>& driver_override) {
  return driver_override && driver_override->find("vfio") != std::string::npos;
}

// The driver cannot be loaded now. A function kept on vfio could wait for it forever: NVIDIA's driver does
// not load while every GPU is on vfio, and then its container brings no driver.
void leave_to_kernel(const Home& home, std::vector<Step>& unbinds, std::vector<Step>& binds,
                     std::vector<std::string>& notes) {
  const PciFunction& function = *home.function;
  if (function.driver) {
    unbinds.push_back({Step::Kind::unbind, function.address, *function.driver, "given back to the host"});
    notes.push_back(fmt::format(
        "{} had {}, which is not loaded, and the host has no module {} to load: the kernel chooses",
        function.address.text(), home.prior.driver.value_or(""), module_for(home.prior)));
  }
  binds.push_back({.kind = Step::Kind::probe,
                   .address = function.address,
                   .why = "the driver it had before cannot be loaded: the kernel chooses"});
}

// A function that is in_other_hands() is left there and noted.
std::vector<Step> rollback(const Inventory& inventory, const std::vector<Home>& homes,
                           std::vector<std::string>& notes) {
  std::vector<Step> steps;  // modules first: without its driver a function is not unbound
  OverrideSteps overrides;
  std::vector<Step> unbinds;
  std::vector<Step> binds;
  for (const Home& home : homes) {
    const PciFunction& function = *home.function;
    if (home.kernel_chooses()) {
      if (!home.on_vfio && !home.in_between()) continue;
      if (function.driver_override) {
        overrides.before_bind.push_back(
            override_step(function, "", "no record of an earlier override: it is cleared"));
      }
      if (function.driver)
        unbinds.push_back({Step::Kind::unbind, function.address, *function.driver, "given back to the host"});
      binds.push_back(
          {Step::Kind::probe, function.address, {}, "no record of an earlier driver: the kernel chooses"});
      continue;
    }
    const bool home_already = function.driver == home.prior.driver;
    if (in_other_hands(home)) {
      // A driver that came between Ferry's scan and its bind: the override is Ferry's.
      if (names_vfio(function.driver_override) && function.driver_override != home.prior.driver_override)
        overrides.before_bind.push_back(
            override_step(function, home.prior.driver_override.value_or(""), "the override it had before"));
      // The kernel may have chosen that driver at an earlier unbind.
      if (home.lost) continue;
      notes.push_back(fmt::format("{} was {} by another program and stays so", function.address.text(),
                                  function.driver ? "bound to " + *function.driver : "unbound"));
      continue;
    }
    const std::string why = "the override it had before";
    if (home_already || !home.prior.driver) {
      if (function.driver_override != home.prior.driver_override) {
        overrides.before_bind.push_back(
            override_step(function, home.prior.driver_override.value_or(""), why));
      }
    } else {
      // If the driver is lost, an override of another driver would keep it away once it is loaded.
      const bool keeps_away = home.lost && home.prior.driver_override != home.prior.driver;
      add_override(function, *home.prior.driver, keeps_away ? std::nullopt : home.prior.driver_override, why,
                   overrides);
    }
    if (home_already && !home.probed) continue;
    if (home.lost) {
      leave_to_kernel(home, unbinds, binds, notes);
      continue;
    }
    if (function.driver)
      unbinds.push_back({Step::Kind::unbind, function.address, *function.driver, "given back to the host"});
    if (home.prior.driver) {
      if (!inventory.drivers.contains(*home.prior.driver)) {
        steps.push_back({Step::Kind::load_module, function.address, module_for(home.prior),
                         "the driver it had before is no longer loaded"});
      }
      binds.push_back({Step::Kind::bind, function.address, *home.prior.driver, "the driver it had before"});
    } else if (home.probed) {
      binds.push_back(
          {Step::Kind::probe, function.address, {}, "it had no driver before: the kernel chooses"});
    }
  }
  for (const auto* part : {&overrides.before_bind, &unbinds, &binds, &overrides.after_bind})
    steps.insert(steps.end(), part->begin(), part->end());
  return steps;
}

Home home_of(const Inventory& inventory, const PciFunction& function, const UndoJournal& journal) {
  // A virtual function of vendor-specific VFIO serves VMs on the driver of its physical function.
  const PciFunction* physical =
      function.physical_function ? inventory.find(*function.physical_function) : nullptr;
  const bool on_gpus_driver =
      physical != nullptr && physical->driver == function.driver && !on_vfio_driver(*physical);
  Home home{.function = &function, .on_vfio = on_vfio_driver(function) && !on_gpus_driver, .prior = {}};
  const auto found = journal.members.find(function.address);
  if (found == journal.members.end() || found->second.ids != function.ids()) return home;
  home.known = true;
  home.prior = found->second;
  home.lost = journal.lost.contains(function.address);
  return home;
}

// The driver that a function has in the end; empty: none.
std::string driver_after(const Home& home) {
  const auto& driver = home.function->driver;
  if (home.kernel_chooses()) return home.on_vfio || home.in_between() ? kKernelsChoice : driver.value_or("");
  if (in_other_hands(home)) return driver.value_or("");
  if (home.probed || (home.lost && driver != home.prior.driver)) return kKernelsChoice;
  return home.prior.driver.value_or("");
}

// A function that is back on its driver stays there, so its users are no obstacle.
Objections objections_to_unbind(const Inventory& inventory, const AcceleratorRules& rules,
                                const Observed& observed, const std::set<PciAddress>& with, const Unit& unit,
                                const Rebind& rebind, const std::vector<Home>& homes) {
  // An unreadable override may be Ferry's, so it is not certain that there is nothing to do.
  const bool idle = rebind.steps.empty() && std::ranges::none_of(homes, [](const Home& home) {
                      return home.known && home.function->override_unread;
                    });
  // A bind that was killed early leaves only overrides to undo.
  const bool harmless = take_nothing(rebind.steps);
  // RebindRequest::recorded_only leaves these out, though the record that cannot be read may have them.
  const auto is_left_out = [&](const PciAddress& address) {
    const PciFunction& function = *inventory.find(address);
    return (!function.driver || on_vfio_driver(function)) &&
           std::ranges::none_of(homes, [&](const Home& home) { return home.function == &function; });
  };
  const bool left_out = std::ranges::any_of(unit.accelerators, is_left_out);
  Objections objections;
  for (const Finding& finding : judge(unit, inventory, rules, observed, {.with = with, .force = true})) {
    const auto home =
        std::ranges::find(homes, finding.about, [](const Home& one) { return one.function->address; });
    const bool changes = home != homes.end();
    const bool taken = changes && home->on_vfio && !harmless && !idle;
    using enum RuleId;
    const bool counts = finding.rule == record_unreadable ? !idle || left_out
                        : finding.rule == stuck_write     ? !idle && (changes || !harmless)
                        : finding.rule == override_unread ? changes && !idle
                        : finding.rule == in_use || finding.rule == fabric_switch
                            ? taken
                            : changes && finding.answer == Answer::yes &&
                                  (finding.rule == unreadable || finding.rule == off_the_bus);
    if (!counts) continue;
    if (finding.user)
      objections.add_user(finding.text, finding.advice);
    else
      objections.add(finding);
  }
  // The judgement leaves them out for a function on vfio, which a bind does not change.
  for (const Home& home : homes)
    if (home.on_vfio && !harmless && home.function->sriov_numvfs > 0)
      objections.add(fmt::format("{} has {} enabled", home.function->address.text(),
                                 counted(home.function->sriov_numvfs, "virtual function")),
                     "disable the virtual functions first: a physical function that has some does not "
                     "change its driver");
  return objections;
}

}  // namespace

RebindPlan plan_unbind(const Inventory& inventory, const AcceleratorRules& rules,
                       const RebindRequest& request, const UseReport& use, const UndoJournal& journal,
                       const std::set<std::string>& stuck) {
  RebindPlan plan;
  const Observed observed{.use = &use, .stuck = &stuck, .unreadable_records = &journal.unreadable};
  const std::set<PciAddress> along = journal.gone_along();
  for (const Unit& unit : units_of(inventory, request.accelerators, along)) {
    Rebind rebind{.devices = unit.accelerators, .groups = groups_of(inventory, unit.functions)};
    std::vector<Home> homes;  // of the members that change drivers
    for (const PciAddress& address : unit.functions) {
      const PciFunction& function = *inventory.find(address);
      Member member = member_of(inventory, unit, request.with, rules, function);
      Home home = home_of(inventory, function, journal);
      // An override of a vfio driver would bring that driver again. A virtual function had no driver on
      // purpose: programs that make functions for VMs keep the host's drivers from them.
      home.probed = home.known && !home.kernel_chooses() && !home.prior.driver &&
                    !function.is_virtual_function() && !names_vfio(home.prior.driver_override) &&
                    (home.on_vfio || !function.driver);
      // A foreign function is unbound only if Ferry took it along.
      if (home.known && !changes_driver(member.role)) member.role = MemberRole::taken_along;
      if (!home.known && request.recorded_only && changes_driver(member.role))
        member.role = MemberRole::bystander;
      if (changes_driver(member.role)) {
        homes.push_back(home);
        member.driver_after = driver_after(home);
        member.removed_next = request.removed_next.contains(address);
        if (member.removed_next && (home.on_vfio || !function.driver)) member.driver_after.clear();
      }
      rebind.members.push_back(std::move(member));
    }

    rebind.steps = rollback(inventory, homes, rebind.notes);
    std::erase_if(rebind.steps, [&](const Step& step) {
      const bool brings_driver = step.kind == Step::Kind::load_module || step.kind == Step::Kind::bind ||
                                 step.kind == Step::Kind::probe;
      return brings_driver && request.removed_next.contains(step.address);
    });
    Objections objections = objections_to_unbind(inventory, rules, observed, along, unit, rebind, homes);
    if (objections.any()) {
      plan.refusals.push_back(std::move(objections).refusal(unit, std::move(rebind.groups)));
    } else {
      plan.rebinds.push_back(std::move(rebind));
    }
  }
  return plan;
}

Undo plan_undo(const Inventory& inventory, const UndoJournal& journal, const std::vector<PciAddress>& only) {
  std::vector<Home> homes;
  // Overrides of functions on vfio before Ferry and still: the program that bound them may use them.
  std::vector<Step> as_found;
  for (const PciAddress& address : only) {
    const PciFunction* function = inventory.find(address);
    if (function == nullptr) continue;
    const Home home = home_of(inventory, *function, journal);
    if (!home.known) continue;
    if (!home.kernel_chooses() || !home.on_vfio) {
      homes.push_back(home);
    } else if (!function->override_unread && function->driver_override != home.prior.driver_override) {
      as_found.push_back(
          override_step(*function, home.prior.driver_override.value_or(""), "it was so before"));
    }
  }
  Undo undo;
  undo.steps = rollback(inventory, homes, undo.notes);
  undo.steps.insert(undo.steps.end(), as_found.begin(), as_found.end());
  return undo;
}

}  // namespace ferry::vfio
