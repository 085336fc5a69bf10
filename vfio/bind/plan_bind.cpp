// SPDX-License-Identifier: Apache-2.0
// Plans a bind to vfio.
#include <algorithm>
#include <iterator>

#include <fmt/format.h>

#include "vfio/bind/objections.h"
#include "vfio/bind/rebind_plan.h"
#include "vfio/judgement/judge.h"
#include "vfio/quiesce/quiesce_plan.h"

namespace ferry::vfio {
namespace {

/// A unit before it is planned or refused.
struct Candidate {
  Unit unit;
  Rebind rebind;
  Objections objections;
  QuiescePlan to_quiesce;
};

// Objects to modules that serve devices outside the change, since a module closes all its devices or none. A
// refusal may cause another, so this repeats. `stays`: true if a unit's objections keep it where it is.
void object_to_shared_modules(std::vector<Candidate>& candidates, bool (Objections::*stays)() const) {
  for (bool settled = false; !settled;) {
    settled = true;
    std::set<std::string> rebinding;
    for (const Candidate& candidate : candidates) {
      if ((candidate.objections.*stays)()) continue;
      for (const PciAddress& address : candidate.rebind.rebinding()) rebinding.insert(address.text());
    }
    for (Candidate& candidate : candidates) {
      if ((candidate.objections.*stays)()) continue;
      for (const Error& stays_for :
           serving_others(candidate.to_quiesce, rebinding, "which stays on its driver")) {
        settled = false;
        candidate.objections.add(stays_for.message, stays_for.hint);
      }
    }
  }
}

// Companions first, unless `accelerators_first`: a card's audio depends on its GPU in power management.
std::vector<const PciFunction*> in_order(const Inventory& inventory, const std::vector<Member>& members,
                                         bool accelerators_first) {
  std::vector<const PciFunction*> out;
  const auto take = [&](bool accelerators) {
    for (const Member& member : members) {
      if (changes_driver(member.role) && (member.role == MemberRole::accelerator) == accelerators)
        out.push_back(inventory.find(member.address));
    }
  };
  take(accelerators_first);
  take(!accelerators_first);
  return out;
}

// The override that a function on vfio had before its unbind began; absent: Ferry has no record of it.
std::optional<std::string> override_on_vfio(const PciFunction& function, const UndoJournal& journal) {
  const auto found = journal.members.find(function.address);
  if (found == journal.members.end() || found->second.ids != function.ids()) return std::nullopt;
  return found->second.kernels_choice ? found->second.driver_override : function.driver;
}

// A function's vfio driver of a moment ago, while that is loaded, or else the driver that fits.
VfioDriver driver_for(const Inventory& inventory, const VfioDriverTable& table, const RebindRequest& request,
                      const PciFunction& function) {
  const auto had = request.as_before.find(function.address);
  if (had != request.as_before.end() && inventory.drivers.contains(had->second.driver))
    return {.module = {}, .driver = had->second.driver};
  return table.choose(function.modalias);
}

// Restores overrides that were absent or named another driver, for example when vfio-pci knows the card by
// its ids=. The bind needs the driver's name in the override, so these steps follow the bind.
std::vector<Step> overrides_as_before(const std::vector<const PciFunction*>& functions,
                                      const std::vector<Step>& steps, const RebindRequest& request) {
  std::vector<Step> out;
  for (const PciFunction* function : functions) {
    const auto had = request.as_before.find(function->address);
    if (had == request.as_before.end() || function->override_unread) continue;
    std::optional<std::string> now = function->driver_override;
    for (const Step& step : steps)
      if (step.kind == Step::Kind::set_override && step.address == function->address) now = step.value;
    if (now != had->second.driver_override)
      out.push_back(override_step(*function, had->second.driver_override.value_or(""), "it was so before"));
  }
  return out;
}

std::vector<Step> steps_to_vfio(const Inventory& inventory, const std::vector<Member>& members,
                                const VfioDriverTable& table, const UndoJournal& journal,
                                const RebindRequest& request) {
  std::vector<const PciFunction*> functions;
  std::vector<Step> lost_overrides;
  for (const PciFunction* function : in_order(inventory, members, false)) {
    if (!on_vfio_driver(*function)) {
      functions.push_back(function);
    } else if (const auto had = override_on_vfio(*function, journal);
               had && !function->override_unread && function->driver_override != had) {
      lost_overrides.push_back(override_step(
          *function, *had,
          "its roll back was begun: without the override a driver that is loaded later takes it"));
    }
  }
  std::vector<Step> steps;
  std::set<std::string> loading;
  for (const PciFunction* function : functions) {
    const auto [module, driver] = driver_for(inventory, table, request, *function);
    if (!inventory.drivers.contains(driver) && loading.insert(module).second) {
      steps.push_back(
          {.kind = Step::Kind::load_module,
           .value = module,
           .why = "its driver is loaded before anything is unbound: a failure then changes nothing"});
    }
  }
  for (const PciFunction* function : functions) {
    const std::string driver = driver_for(inventory, table, request, *function).driver;
    if (function->driver_override != driver)
      steps.push_back(override_step(*function, driver, "so that no other driver takes it in between"));
  }
  steps.insert(steps.end(), lost_overrides.begin(), lost_overrides.end());
  for (const PciFunction* function : functions) {
    if (function->driver) {
      steps.push_back(
          {Step::Kind::unbind, function->address, *function->driver, "the host's driver must release it"});
    }
  }
  for (const PciFunction* function : functions) {
    steps.push_back({Step::Kind::bind, function->address,
                     driver_for(inventory, table, request, *function).driver,
                     "every member of the group must be on a vfio driver"});
  }
  std::ranges::move(overrides_as_before(in_order(inventory, members, false), steps, request),
                    std::back_inserter(steps));
  return steps;
}

// True for a virtual function that is gone by then (RebindRequest::sheds_functions).
bool goes_first(const Inventory& inventory, const RebindRequest& request, const PciFunction& function) {
  const PciFunction* const gpu =
      function.physical_function ? inventory.find(*function.physical_function) : nullptr;
  return gpu != nullptr && request.sheds_functions.contains(gpu->address) && !on_vfio_driver(*gpu);
}

Candidate candidate_of(const Inventory& inventory, const AcceleratorRules& rules,
                       const RebindRequest& request, const VfioDriverTable& drivers,
                       const UndoJournal& journal, Unit unit) {
  Rebind rebind{.devices = unit.accelerators, .groups = groups_of(inventory, unit.functions)};
  for (const PciAddress& address : unit.functions) {
    const PciFunction& function = *inventory.find(address);
    if (goes_first(inventory, request, function)) continue;
    Member member = member_of(inventory, unit, request.with, rules, function);
    if (member.role == MemberRole::bystander && !function.driver) {
      rebind.notes.push_back(
          fmt::format("{} shares the group without a driver and is left alone", describe(function)));
    } else if (changes_driver(member.role) && !on_vfio_driver(function)) {
      member.driver_after = driver_for(inventory, drivers, request, function).driver;
      if (const auto other = override_of_another_driver(function)) {
        rebind.notes.push_back(*other +
                               "; `ferry vfio unbind` brings back the driver and then this override");
      }
    }
    rebind.members.push_back(std::move(member));
  }

  // A note for each function in a GPU's slot that is no companion and in no group of the unit.
  for (const PciAddress& asked : unit.accelerators) {
    const PciFunction& gpu = *inventory.find(asked);
    PciAddress first = asked;
    first.function = 0;
    for (auto entry = inventory.functions.lower_bound(first);
         entry != inventory.functions.end() && entry->first.same_slot(first); ++entry) {
      const auto& [address, function] = *entry;
      if (!shares_slot(gpu, function) || unit.functions.contains(address)) continue;
      if (!function.driver || on_vfio_driver(function) || rules.match(function)) continue;
      rebind.notes.push_back(
          fmt::format("{} is in the slot of {} and stays: {}", describe(function), asked.text(),
                      may_be_of_the_card(gpu, function)
                          ? fmt::format("if it is of the card, --with {} binds it too", address.text())
                          : "it is none of the card's audio, USB or USB-C functions"));
    }
  }
  rebind.steps = steps_to_vfio(inventory, rebind.members, drivers, journal, request);
  return {.unit = std::move(unit), .rebind = std::move(rebind), .objections = {}, .to_quiesce = {}};
}

// A function that is on vfio already stays there even if it is in use, since that is its purpose. Steps that
// only set overrides take a device from no user, and still need the record.
bool matters(const Finding& finding, const Rebind& rebind) {
  if (!finding.blocks(Blocks::bind)) return false;
  if (!rule(finding.rule).of_a_change) return true;
  if (rebind.steps.empty()) return false;
  return !take_nothing(rebind.steps) || finding.rule == RuleId::record_unreadable ||
         finding.rule == RuleId::override_unread;
}

void object_to_bind(const Inventory& inventory, const AcceleratorRules& rules, const RebindRequest& request,
                    const Observed& observed, Candidate& candidate) {
  const Asked asked{.with = request.with,
                    .sheds = request.sheds_functions,
                    .force = request.force,
                    .named_at = request.named_at};
  for (const Finding& finding : judge(candidate.unit, inventory, rules, observed, asked)) {
    if (!matters(finding, candidate.rebind)) continue;
    if (!finding.user) {
      candidate.objections.add(finding);
    } else if (const auto may = may_release(*finding.user, request.release, finding.about)) {
      candidate.to_quiesce.add(*may, *finding.user, finding.about);
    } else {
      candidate.objections.add_user(finding.text, remedy_by_release(*finding.user));
    }
  }
}

}  // namespace

RebindPlan plan_bind(const Inventory& inventory, const AcceleratorRules& rules, const RebindRequest& request,
                     const UseReport& use, const VfioDriverTable& drivers, const UndoJournal& journal,
                     const std::set<std::string>& stuck) {
  const Observed observed{.use = &use,
                          .stuck = &stuck,
                          .unreadable_records = &journal.unreadable,
                          .carriers = &request.untouchable};
  std::vector<Candidate> candidates;
  for (Unit& unit : units_of(inventory, request.accelerators, request.with)) {
    candidates.push_back(candidate_of(inventory, rules, request, drivers, journal, std::move(unit)));
    object_to_bind(inventory, rules, request, observed, candidates.back());
  }
  // Lasting objections come first: no service should stop for a unit that is refused anyway.
  object_to_shared_modules(candidates, &Objections::lasting);
  object_to_shared_modules(candidates, &Objections::any);

  const auto is_gpu = [&](const PciAddress& address) { return rules.match(*inventory.find(address)); };
  const auto serves_others = [&](const PciAddress& held) {
    return std::ranges::any_of(inventory.functions, [&](const auto& entry) {
      const auto& [address, function] = entry;
      return is_gpu(address) && function.driver == inventory.find(held)->driver &&
             std::ranges::find(request.accelerators, address) == request.accelerators.end();
    });
  };
  RebindPlan plan;
  for (auto& [unit, rebind, objections, to_quiesce] : candidates) {
    if (objections.any()) {
      // Members that still block by the kernel's rule once the whole request is on vfio.
      const auto rebinding = rebind.rebinding();
      std::vector<PciAddress> blockers;
      for (const std::uint32_t group : rebind.groups) {
        std::ranges::copy_if(viability_blockers(inventory, group), std::back_inserter(blockers),
                             [&](const PciAddress& address) {
                               return std::ranges::find(rebinding, address) == rebinding.end();
                             });
      }
      plan.refusals.push_back(std::move(objections).refusal(unit, std::move(rebind.groups)));
      plan.refusals.back().blockers = std::move(blockers);
      continue;
    }
    quiesce_around(rebind.steps,
                   users_to_quiesce(to_quiesce, request.persistence_by_gpu, is_gpu, serves_others));
    plan.rebinds.push_back(std::move(rebind));
  }
  return plan;
}

}  // namespace ferry::vfio
