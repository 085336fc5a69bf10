// SPDX-License-Identifier: Apache-2.0
#include "vfio/move_plan.h"

#include <algorithm>
#include <functional>

#include <fmt/format.h>

#include "common/counted.h"
#include "vfio/driver_modules.h"
#include "vfio/release.h"

namespace ferry {
namespace {

// A virtual function moves alone, though it may look like one more function of its card.
bool is_companion(const PciFunction& accelerator, const PciFunction& function) {
  if (function.address == accelerator.address || function.is_bridge()) return false;
  if (function.is_virtual_function() || accelerator.is_virtual_function()) return false;
  return function.address.same_slot(accelerator.address) ||
         std::find(accelerator.consumers.begin(), accelerator.consumers.end(), function.address) !=
             accelerator.consumers.end();
}

/// Functions that move together or not at all.
struct Unit {
  std::vector<PciAddress> accelerators;  // those asked for
  std::set<PciAddress> functions;        // every member of every group concerned
};

// The accelerator's group, its companions, and their groups.
Unit unit_around(const Inventory& inventory, const PciFunction& accelerator) {
  Unit unit{.accelerators = {accelerator.address}, .functions = {}};
  const auto add_group_of = [&](const PciFunction& function) {
    const auto members = inventory.group_of(function);
    unit.functions.insert(members.begin(), members.end());
  };
  add_group_of(accelerator);
  for (const auto& [address, function] : inventory.functions) {
    if (is_companion(accelerator, function)) add_group_of(function);
  }
  return unit;
}

// Units that share a function are one.
std::vector<Unit> units_of(const Inventory& inventory, const std::vector<PciAddress>& accelerators) {
  std::vector<Unit> units;
  for (const PciAddress& address : accelerators) {
    Unit unit = unit_around(inventory, *inventory.find(address));
    for (auto other = units.begin(); other != units.end();) {
      const bool shared = std::any_of(unit.functions.begin(), unit.functions.end(),
                                      [&](const PciAddress& f) { return other->functions.contains(f); });
      if (!shared) {
        ++other;
        continue;
      }
      unit.functions.merge(other->functions);
      unit.accelerators.insert(unit.accelerators.end(), other->accelerators.begin(),
                               other->accelerators.end());
      other = units.erase(other);
    }
    std::sort(unit.accelerators.begin(), unit.accelerators.end());
    units.push_back(std::move(unit));
  }
  return units;
}

std::vector<std::uint32_t> groups_of(const Inventory& inventory, const std::set<PciAddress>& functions) {
  std::set<std::uint32_t> groups;
  for (const PciAddress& address : functions) {
    if (const auto group = inventory.find(address)->iommu_group) groups.insert(*group);
  }
  return {groups.begin(), groups.end()};
}

bool blocks_viability(const PciFunction& function) {
  if (!function.driver || on_vfio_driver(function)) return false;
  return *function.driver != "pcieport" && *function.driver != "pci-stub";
}

MemberRole role_in(const Inventory& inventory, const Unit& unit, const std::set<PciAddress>& with,
                   const AcceleratorRules& rules, const PciFunction& function) {
  const auto asked = [&](const PciAddress& a) {
    return std::find(unit.accelerators.begin(), unit.accelerators.end(), a) != unit.accelerators.end();
  };
  if (function.is_bridge()) return blocks_viability(function) ? MemberRole::in_the_way : MemberRole::bridge;
  if (asked(function.address)) return MemberRole::accelerator;
  const bool companion =
      std::any_of(unit.accelerators.begin(), unit.accelerators.end(),
                  [&](const PciAddress& a) { return is_companion(*inventory.find(a), function); });
  if (companion && !rules.match(function)) return MemberRole::companion;
  if (with.contains(function.address)) return MemberRole::taken_along;
  return blocks_viability(function) ? MemberRole::in_the_way : MemberRole::bystander;
}

bool moves(MemberRole role) {
  return role == MemberRole::accelerator || role == MemberRole::companion || role == MemberRole::taken_along;
}

std::string describe(const PciFunction& function) {
  return fmt::format("{} ({}, class {:04x}, {})", function.address.text(), function.ids(),
                     function.class_code >> 8U, function.driver ? "driver " + *function.driver : "no driver");
}

/// Gathers why a unit cannot move; the first hint counts.
class Objections {
 public:
  void add(std::string reason, const std::string& hint = {}) {
    refusal_.reasons.push_back(std::move(reason));
    if (refusal_.hint.empty()) refusal_.hint = hint;
  }
  bool any() const { return !refusal_.reasons.empty(); }
  Refusal refusal(const Unit& unit, std::vector<std::uint32_t> groups) && {
    refusal_.devices = unit.accelerators;
    refusal_.groups = std::move(groups);
    return std::move(refusal_);
  }

 private:
  Refusal refusal_;
};

constexpr const char* kDisableThem =
    "disable the virtual functions first: a physical function that has some does not change its driver";

// The physical function of one that is asked for, or a virtual function of it, in one group with it.
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
    objections.add(
        fmt::format("{} shares the group and is not part of the card", describe(function)),
        fmt::format("another slot, or ACS and SR-IOV in the firmware, may give the card a group of its own; "
                    "--with {} moves that device too",
                    function.address.text()));
  }
}

std::string remedy_of(const Holder& holder, bool could_be_released) {
  if (could_be_released && holder.kind == Holder::Kind::console) {
    return fmt::format(
        "if nothing needs its screen, let it be unloaded for the move: --release {0} (in a "
        "policy: release: [{0}])",
        holder.name);
  }
  if (!could_be_released || holder.service.empty() || runs_others(holder.service))
    return std::string(holder.remedy());
  return fmt::format(
      "stop it first, or let it be stopped for the move: --release {0} (in a policy: release: [{0}])",
      holder.service);
}

/// Who has to let go of a unit for a while: what stands in the way, but no objection.
struct Released {
  std::map<Releasable, std::vector<PciAddress>> holders;  ///< and of which functions
  std::map<std::string, std::set<std::string>> also;      ///< by module: the other devices it lets go of then
};

// Who holds the function may go into `released`, where that is given.
void object_to_moving(const PciFunction& function, const MoveRequest& request, const UseReport& use,
                      const std::set<std::string>& stuck, Objections& objections, Released* released) {
  const std::string name = function.address.text();
  if (function.problem) {
    objections.add(fmt::format("{} cannot be read: {}", name, function.problem->message));
  }
  if (stuck.contains(name)) {
    objections.add(fmt::format("an earlier write to {} has not returned from the kernel", name),
                   "see /run/ferry/stuck; if it never returns, only a reboot helps");
  }
  if (!use.blind.empty()) {
    objections.add(fmt::format("nobody can say whether {} is free: {}", name, use.blind),
                   "run as root in the host's PID namespace, with the capabilities that SECURITY.md names");
  }
  for (const Holder& holder : use.of(name)) {
    if (request.force && holder.only_a_screen()) continue;
    if (const auto may = may_release(holder, request.release); released != nullptr && may) {
      released->holders[*may].push_back(function.address);
      if (may->kind == Releasable::Kind::module)
        released->also[may->name].insert(holder.also.begin(), holder.also.end());
      continue;
    }
    objections.add(fmt::format("{} is in use: {}", name, holder.text()),
                   remedy_of(holder, released != nullptr));
  }
}

// vfio-pci takes no physical function that has some, and takes them away, from VMs too, when it loses one.
void object_to_virtual_functions(const PciFunction& function, Objections& objections) {
  if (function.sriov_numvfs == 0) return;
  objections.add(fmt::format("{} has {} enabled", function.address.text(),
                             counted(function.sriov_numvfs, "virtual function")),
                 kDisableThem);
}

Step override_step(const PciFunction& function, const std::string& value, std::string why) {
  return {
      .kind = Step::Kind::set_override, .address = function.address, .value = value, .why = std::move(why)};
}

/// A unit on its way to be planned or refused.
struct Candidate {
  Unit unit;
  Move move;
  Objections objections;
  Released released;
};

// A module lets go of all its devices or of none. A unit that is refused for that may keep another from
// moving.
void object_to_shared_modules(std::vector<Candidate>& candidates) {
  for (bool settled = false; !settled;) {
    settled = true;
    std::set<std::string> moving;
    for (const Candidate& candidate : candidates) {
      if (candidate.objections.any()) continue;
      for (const PciAddress& address : candidate.move.moving()) moving.insert(address.text());
    }
    for (Candidate& candidate : candidates) {
      if (candidate.objections.any()) continue;
      for (const auto& [module, devices] : candidate.released.also) {
        for (const std::string& device : devices) {
          if (moving.contains(device)) continue;
          settled = false;
          candidate.objections.add(
              fmt::format("{} is not unloaded: it also serves {}, which does not move with this", module,
                          device),
              fmt::format("move all its GPUs together, or load it with fbdev=0 (options {} in "
                          "/etc/modprobe.d)",
                          module));
        }
      }
    }
  }
}

// nvidia-persistenced is asked for single GPUs where others are left to it. Where none is, its service is
// stopped: that needs no tool of the driver's, lets go of what the daemon holds beside the GPUs too, and
// there is nobody whom it would serve meanwhile.
std::set<Releasable> asked_to_let_go(const Inventory& inventory, const AcceleratorRules& rules,
                                     const MoveRequest& request, const Released& released) {
  std::set<Releasable> out;
  for (const auto& [holder, functions] : released.holders) {
    const bool serves_others = std::ranges::any_of(inventory.functions, [&](const auto& entry) {
      const auto& [address, function] = entry;
      return rules.match(function) && function.driver == inventory.find(functions.front())->driver &&
             std::ranges::find(request.accelerators, address) == request.accelerators.end();
    });
    if (holder.name != kPersistenced || !request.persistence_by_gpu || !serves_others) {
      out.insert(holder);
      continue;
    }
    for (const PciAddress& function : functions)
      out.insert({.kind = Releasable::Kind::persistence, .name = function.text()});
  }
  return out;
}

// Companions before accelerators: a card's audio driver may sleep on the GPU's.
std::vector<const PciFunction*> in_order(const Inventory& inventory, const std::vector<Member>& members,
                                         bool accelerators_first) {
  std::vector<const PciFunction*> out;
  const auto take = [&](bool accelerators) {
    for (const Member& member : members) {
      if (moves(member.role) && (member.role == MemberRole::accelerator) == accelerators) {
        out.push_back(inventory.find(member.address));
      }
    }
  };
  take(accelerators_first);
  take(!accelerators_first);
  return out;
}

std::vector<Step> steps_to_vfio(const Inventory& inventory, const std::vector<Member>& members,
                                const VfioDriverTable& table) {
  std::vector<const PciFunction*> functions;
  for (const PciFunction* function : in_order(inventory, members, false)) {
    if (!on_vfio_driver(*function)) functions.push_back(function);
  }
  std::vector<Step> steps;
  std::set<std::string> loading;
  for (const PciFunction* function : functions) {
    const auto [module, driver] = table.choose(function->modalias);
    if (!inventory.drivers.contains(driver) && loading.insert(module).second) {
      steps.push_back(
          {.kind = Step::Kind::load_module,
           .address = {},
           .value = module,
           .why = "its driver is loaded before anything is unbound: a failure then changes nothing"});
    }
  }
  for (const PciFunction* function : functions) {
    const std::string driver = table.choose(function->modalias).driver;
    if (function->driver_override != driver) {
      steps.push_back(override_step(*function, driver, "so that no other driver takes it in between"));
    }
  }
  for (const PciFunction* function : functions) {
    if (function->driver) {
      steps.push_back({.kind = Step::Kind::unbind,
                       .address = function->address,
                       .value = *function->driver,
                       .why = "the host's driver lets go"});
    }
  }
  for (const PciFunction* function : functions) {
    steps.push_back({.kind = Step::Kind::bind,
                     .address = function->address,
                     .value = table.choose(function->modalias).driver,
                     .why = "every member of the group must be on a vfio driver"});
  }
  return steps;
}

/// Where a function goes back to. `known` is false when it was on vfio before Ferry: then "natural".
struct Home {
  const PciFunction* function = nullptr;
  bool known = false;
  PriorState prior;
};

// Neither where Ferry put it nor where it was: moved by somebody else meanwhile.
bool in_other_hands(const Home& home) {
  const PciFunction& function = *home.function;
  return home.known && function.driver && function.driver != home.prior.driver && !on_vfio_driver(function);
}

// What way_back() found in somebody else's hands is left there and noted.
std::vector<Step> way_back(const Inventory& inventory, const std::vector<Home>& homes,
                           std::vector<std::string>& notes) {
  std::vector<Step> steps;  // modules first: what fails there has moved nothing yet
  std::vector<Step> overrides;
  std::vector<Step> unbinds;
  std::vector<Step> binds;
  for (const Home& home : homes) {
    const PciFunction& function = *home.function;
    if (!home.known) {
      if (!function.driver || !on_vfio_driver(function)) continue;
      if (function.driver_override) {
        overrides.push_back(override_step(function, "", "no record of an earlier override: it is cleared"));
      }
      unbinds.push_back({.kind = Step::Kind::unbind,
                         .address = function.address,
                         .value = *function.driver,
                         .why = "given back to the host"});
      binds.push_back({.kind = Step::Kind::probe,
                       .address = function.address,
                       .value = {},
                       .why = "no record of an earlier driver: the kernel chooses"});
      continue;
    }
    const bool home_already = function.driver == home.prior.driver;
    if (in_other_hands(home)) {
      notes.push_back(fmt::format("{} was moved to {} by somebody else and is left there",
                                  function.address.text(), function.driver.value_or("no driver")));
      continue;
    }
    if (function.driver_override != home.prior.driver_override) {
      overrides.push_back(
          override_step(function, home.prior.driver_override.value_or(""), "the override it had before"));
    }
    if (home_already) continue;
    if (function.driver) {
      unbinds.push_back({.kind = Step::Kind::unbind,
                         .address = function.address,
                         .value = *function.driver,
                         .why = "given back to the host"});
    }
    if (home.prior.driver) {
      if (!inventory.drivers.contains(*home.prior.driver)) {
        steps.push_back({.kind = Step::Kind::load_module,
                         .address = {},
                         .value = home.prior.module.value_or(module_named_as(*home.prior.driver)),
                         .why = "the driver it had before is no longer loaded"});
      }
      binds.push_back({.kind = Step::Kind::bind,
                       .address = function.address,
                       .value = *home.prior.driver,
                       .why = "the driver it had before"});
    }
  }
  steps.insert(steps.end(), overrides.begin(), overrides.end());
  steps.insert(steps.end(), unbinds.begin(), unbinds.end());
  steps.insert(steps.end(), binds.begin(), binds.end());
  return steps;
}

Home home_of(const PciFunction& function, const MoveRecord& record) {
  const auto found = record.members.find(function.address);
  if (found == record.members.end() || found->second.ids != function.ids()) {
    return {.function = &function, .known = false, .prior = {}};
  }
  return {.function = &function, .known = true, .prior = found->second};
}

}  // namespace

std::string_view text(MemberRole role) {
  switch (role) {
    case MemberRole::accelerator:
      return "accelerator";
    case MemberRole::companion:
      return "companion";
    case MemberRole::taken_along:
      return "taken along";
    case MemberRole::bridge:
      return "bridge";
    case MemberRole::bystander:
      return "bystander";
    case MemberRole::in_the_way:
      return "in the way";
  }
  return "unknown";
}

std::string Step::text() const {
  switch (kind) {
    case Kind::load_module:
      return "load module " + value;
    case Kind::set_override:
      return value.empty() ? "clear driver_override of " + address.text()
                           : "set driver_override of " + address.text() + " to " + value;
    case Kind::unbind:
      return "unbind " + address.text() + " from " + value;
    case Kind::bind:
      return "bind " + address.text() + " to " + value;
    case Kind::probe:
      return "let the kernel choose a driver for " + address.text();
    case Kind::let_go:
      return holder.letting_go();
    case Kind::take_hold:
      return holder.taking_hold();
  }
  return {};
}

std::vector<PciAddress> Move::moving() const {
  std::vector<PciAddress> out;
  for (const Member& member : members) {
    if (moves(member.role)) out.push_back(member.address);
  }
  return out;
}

std::vector<PciAddress> concerned(const Inventory& inventory, const std::vector<PciAddress>& accelerators) {
  std::set<PciAddress> all;
  for (const Unit& unit : units_of(inventory, accelerators)) {
    for (const PciAddress& address : unit.functions) {
      if (!inventory.find(address)->is_bridge()) all.insert(address);
    }
  }
  return {all.begin(), all.end()};
}

std::vector<PciAddress> viability_blockers(const Inventory& inventory, std::uint32_t group) {
  std::vector<PciAddress> out;
  const auto found = inventory.groups.find(group);
  if (found == inventory.groups.end()) return out;
  for (const PciAddress& address : found->second) {
    if (blocks_viability(*inventory.find(address))) out.push_back(address);
  }
  return out;
}

// Around all other steps: what the holder keeps open must be closed before the first look that counts, and
// nothing that happens in between may leave it down.
void release_around(Move& move, const std::set<Releasable>& holders) {
  std::vector<Step> out;
  out.reserve(move.steps.size() + 2 * holders.size());
  for (const Releasable& holder : holders) {
    out.push_back({.kind = Step::Kind::let_go,
                   .address = {},
                   .value = {},
                   .why = "it holds a device and is on the release list; once for all groups that need it",
                   .holder = holder});
  }
  out.insert(out.end(), move.steps.begin(), move.steps.end());
  for (auto holder = holders.rbegin(); holder != holders.rend(); ++holder) {
    const bool of_one = holder->kind == Releasable::Kind::persistence;
    out.push_back({.kind = Step::Kind::take_hold,
                   .address = {},
                   .value = {},
                   .why = of_one ? "once the GPU is back on the driver it had, by this command or a later one"
                                 : "it serves the host's other devices; once all groups have moved, whatever "
                                   "becomes of them",
                   .holder = *holder});
  }
  move.steps = std::move(out);
}

MovePlan plan_bind(const Inventory& inventory, const AcceleratorRules& rules, const MoveRequest& request,
                   const UseReport& use, const VfioDriverTable& drivers, const std::set<std::string>& stuck) {
  std::vector<Candidate> candidates;
  for (Unit& unit : units_of(inventory, request.accelerators)) {
    Move move;
    move.devices = unit.accelerators;
    move.groups = groups_of(inventory, unit.functions);
    Objections objections;
    for (const PciAddress& address : unit.functions) {
      const PciFunction& function = *inventory.find(address);
      Member member{.address = address,
                    .role = role_in(inventory, unit, request.with, rules, function),
                    .driver_before = function.driver.value_or(""),
                    .driver_after = function.driver.value_or("")};
      if (member.role == MemberRole::in_the_way) {
        object_to_member(inventory, unit, rules, function, objections);
      } else if (member.role == MemberRole::bystander && !function.driver) {
        move.notes.push_back(
            fmt::format("{} shares the group without a driver and is left alone", describe(function)));
      } else if (moves(member.role) && !on_vfio_driver(function)) {
        member.driver_after = drivers.choose(function.modalias).driver;
      }
      move.members.push_back(std::move(member));
    }
    if (!objections.any()) move.steps = steps_to_vfio(inventory, move.members, drivers);
    Released released;
    // What is on vfio already stays there whoever uses it: that is what it is there for.
    if (!move.steps.empty()) {
      for (const PciAddress& address : move.moving()) {
        const PciFunction& function = *inventory.find(address);
        object_to_moving(function, request, use, stuck, objections, &released);
        if (!function.iommu_group) {
          objections.add(fmt::format("{} is in no IOMMU group", address.text()),
                         "switch the IOMMU on in the firmware and, on Intel, boot with intel_iommu=on");
        }
        object_to_virtual_functions(function, objections);
        if (const auto kept = request.untouchable.find(address); kept != request.untouchable.end()) {
          objections.add(fmt::format("{} {}", address.text(), kept->second));
        }
      }
    }
    candidates.push_back({.unit = std::move(unit),
                          .move = std::move(move),
                          .objections = std::move(objections),
                          .released = std::move(released)});
  }
  object_to_shared_modules(candidates);
  MovePlan plan;
  for (auto& [unit, move, objections, released] : candidates) {
    if (objections.any()) {
      plan.refusals.push_back(std::move(objections).refusal(unit, std::move(move.groups)));
      continue;
    }
    release_around(move, asked_to_let_go(inventory, rules, request, released));
    plan.moves.push_back(std::move(move));
  }
  return plan;
}

MovePlan plan_unbind(const Inventory& inventory, const AcceleratorRules& rules, const MoveRequest& request,
                     const UseReport& use, const MoveRecord& record, const std::set<std::string>& stuck) {
  MovePlan plan;
  for (const Unit& unit : units_of(inventory, request.accelerators)) {
    Move move;
    move.devices = unit.accelerators;
    move.groups = groups_of(inventory, unit.functions);
    std::vector<Home> homes;
    for (const PciAddress& address : unit.functions) {
      const PciFunction& function = *inventory.find(address);
      Member member{.address = address,
                    .role = role_in(inventory, unit, request.with, rules, function),
                    .driver_before = function.driver.value_or(""),
                    .driver_after = function.driver.value_or("")};
      const Home home = home_of(function, record);
      // A foreign function moves back only if it was Ferry that took it along.
      if (home.known && !moves(member.role)) member.role = MemberRole::taken_along;
      if (!home.known && request.recorded_only && moves(member.role)) member.role = MemberRole::bystander;
      if (moves(member.role)) {
        homes.push_back(home);
        if (home.known) {
          if (!in_other_hands(home)) member.driver_after = home.prior.driver.value_or("");
        } else if (on_vfio_driver(function)) {
          member.driver_after = kKernelsChoice;
        }
      }
      move.members.push_back(std::move(member));
    }
    move.steps = way_back(inventory, homes, move.notes);
    Objections objections;
    if (!move.steps.empty()) {
      // An override alone takes nothing from anybody: a bind that was killed early leaves just that to undo.
      static const UseReport kNobody;
      const bool harmless = std::all_of(move.steps.begin(), move.steps.end(), [](const Step& step) {
        return step.kind == Step::Kind::set_override;
      });
      for (const PciAddress& address : move.moving()) {
        const PciFunction& function = *inventory.find(address);
        object_to_moving(function, request, harmless ? kNobody : use, stuck, objections, nullptr);
        if (!harmless && on_vfio_driver(function)) object_to_virtual_functions(function, objections);
      }
    }
    if (objections.any()) {
      plan.refusals.push_back(std::move(objections).refusal(unit, std::move(move.groups)));
    } else {
      plan.moves.push_back(std::move(move));
    }
  }
  return plan;
}

Undo plan_undo(const Inventory& inventory, const MoveRecord& record, const std::vector<PciAddress>& only) {
  std::vector<Home> homes;
  for (const PciAddress& address : only) {
    const PciFunction* function = inventory.find(address);
    if (function == nullptr) continue;
    if (const Home home = home_of(*function, record); home.known) homes.push_back(home);
  }
  Undo undo;
  undo.steps = way_back(inventory, homes, undo.notes);
  return undo;
}

}  // namespace ferry
