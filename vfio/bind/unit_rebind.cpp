// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>

#include <fmt/format.h>

#include "hostfs/stuck_writes.h"
#include "vfio/bind/driver_choice.h"
#include "vfio/bind/driver_modules.h"
#include "vfio/bind/fence.h"
#include "vfio/bind/rebind_apply.h"
#include "vfio/judgement/unit_members.h"
#include "vfio/pci/kernel_options.h"
#include "vfio/use_probe.h"

namespace ferry::vfio {
namespace {

// The write of a step; absent for a step that is not exactly one write.
std::optional<AttributeWrite> write_of(const Step& step) {
  const std::filesystem::path bus = "sys/bus/pci";
  const std::string address = step.address.text();
  switch (step.kind) {
    case Step::Kind::set_override:
      // The kernel clears the override on one newline; an empty write would never reach the kernel.
      return AttributeWrite{.path = sysfs_path(step.address) / "driver_override",
                            .value = step.value.empty() ? "\n" : step.value};
    case Step::Kind::unbind:
      return AttributeWrite{.path = bus / "drivers" / step.value / "unbind", .value = address};
    case Step::Kind::bind:
      return AttributeWrite{.path = bus / "drivers" / step.value / "bind", .value = address};
    case Step::Kind::probe:
      return AttributeWrite{.path = bus / "drivers_probe", .value = address};
    case Step::Kind::load_module:
    case Step::Kind::quiesce:
    case Step::Kind::resume:
      break;
  }
  return std::nullopt;
}

// A module may load without bringing the driver that a function needs.
Result<> brings_driver(const HostFs& host, const std::vector<Step>& steps, const Step& load) {
  for (const Step& step : steps) {
    if (step.kind != Step::Kind::bind || step.address != load.address) continue;
    if (!host.exists(std::filesystem::path("sys/bus/pci/drivers") / step.value))
      return fail(Errc::failed, "it is loaded and has not brought driver " + step.value);
  }
  return {};
}

// Performs steps in order from `next` to the first failure; `next` is then the step after the failed one.
Result<> perform_some(const RebindContext& context, const std::vector<Step>& steps, std::size_t& next) {
  while (next < steps.size()) {
    std::vector<AttributeWrite> writes;
    for (std::size_t i = next; i < steps.size(); ++i) {
      auto write = write_of(steps[i]);
      if (!write) break;
      writes.push_back(std::move(*write));
    }
    if (writes.empty()) {
      const Step& step = steps[next++];
      auto done = perform(context, step);
      if (done && step.kind == Step::Kind::load_module) done = brings_driver(*context.host, steps, step);
      if (!done) return fail(std::move(done).error().during(step.text()));
      continue;
    }
    const std::size_t first = next;
    std::size_t at = first;  // a failure before any write counts as the first step's
    auto done = context.writer->write_in_order(writes, [&](std::size_t i) {
      at = first + i;
      if (context.on_step) context.on_step(steps[at]);
    });
    next = done ? first + writes.size() : at + 1;
    if (!done) return fail(std::move(done).error().during(steps[at].text()));
  }
  return {};
}

struct Failure {
  Step step;
  Error error;
};

// Goes on with the other functions after an error, except after a hang. A function's later steps are dropped:
// without the new driver, or with its old override, it would lose its present driver and find no other.
std::vector<Failure> perform_each(const RebindContext& context, std::vector<Step> left) {
  std::vector<Failure> failures;
  for (std::size_t next = 0; next < left.size();) {
    auto done = perform_some(context, left, next);
    if (done) break;
    const Step failed = left[next - 1];
    failures.push_back({.step = failed, .error = std::move(done).error()});
    if (failures.back().error.code == Errc::stuck) break;
    const auto rest = left.begin() + static_cast<std::ptrdiff_t>(next);
    const auto is_of_it = [&](const Step& step) {
      return !step.of_a_device_user() && step.address == failed.address;
    };
    left.erase(std::remove_if(rest, left.end(), is_of_it), left.end());
  }
  return failures;
}

bool hangs(const std::vector<Failure>& failures) {
  return !failures.empty() && failures.back().error.code == Errc::stuck;
}

// A bind records functions of host drivers. For a function that was on vfio before Ferry the earlier driver
// is unknown, and "vfio-pci" is no state to restore. An unbind records functions that another program bound
// to vfio: between unbind and probe they have no driver, and nothing else shows that they had one.
Result<> record_before(const RebindContext& context, const Inventory& inventory, const Rebind& rebind,
                       Direction direction) {
  const bool to_vfio = direction == Direction::to_vfio;
  std::map<std::uint32_t, std::map<PciAddress, PriorState>> by_group;
  std::set<PciAddress> fresh;
  for (const Member& member : rebind.members) {
    const PciFunction& function = *inventory.find(member.address);
    const bool changes = to_vfio ? changes_driver(member.role) : member.driver_after == kKernelsChoice;
    if (!changes || !function.iommu_group || on_vfio_driver(function) == to_vfio) continue;
    // A killed run of Ferry would have left an override or no driver; this function has neither trace.
    if (to_vfio && function.driver && function.driver_override != member.driver_after)
      fresh.insert(member.address);
    PriorState prior{.ids = function.ids(),
                     .driver_override = function.driver_override,
                     .role = std::string(text(member.role)),
                     .kernels_choice = !to_vfio};
    if (to_vfio && function.driver) {
      prior.driver = function.driver;
      prior.module = module_of_driver(*context.host, *function.driver);
    }
    by_group[*function.iommu_group][member.address] = std::move(prior);
  }
  for (const auto& [group, members] : by_group)
    if (auto written = write_undo_journal(*context.host, group, members, fresh); !written) return written;
  return {};
}

Result<> not_as_planned(const PciFunction& function, const std::string& planned) {
  return fail(Errc::failed, fmt::format("{} is on {} after the change, not on {}", function.address.text(),
                                        function.driver.value_or("no driver"), planned));
}

std::vector<PciAddress> all_members(const Rebind& rebind) {
  std::vector<PciAddress> out;
  out.reserve(rebind.members.size());
  for (const Member& member : rebind.members) out.push_back(member.address);
  return out;
}

// A unit's present state, with the overrides that a roll back is planned from.
Result<Inventory> scan_unit_to_undo(const RebindContext& context, const Rebind& rebind) {
  auto now = scan_members(*context.host, rebind.groups, all_members(rebind));
  if (now) read_overrides(*context.host, *context.writer, rebind.rebinding(), *now);
  return now;
}

// Scans again, since a successful write proves nothing: drivers_probe succeeds even if nothing was bound.
Result<> verify(const RebindContext& context, const Inventory& before, const Rebind& rebind,
                Direction direction) {
  auto now = scan_members_again(*context.host, rebind.groups, all_members(rebind), before);
  if (!now) return fail(std::move(now).error().during("read back"));
  for (const Member& member : rebind.members) {
    const PciFunction* function = now->find(member.address);
    if (function == nullptr)
      return fail(Errc::failed, fmt::format("{} vanished during the change", member.address.text()));
    if (member.role == MemberRole::bridge || member.role == MemberRole::bystander) continue;
    if (direction == Direction::to_vfio) {
      if (!on_vfio_driver(*function)) return not_as_planned(*function, member.driver_after);
      // The group's node or, on kernels without CONFIG_VFIO_GROUP, the device's own.
      const std::filesystem::path nodes = "dev/vfio";
      const bool has_node = context.host->exists(nodes / std::to_string(function->iommu_group.value_or(0))) ||
                            std::ranges::any_of(function->vfio_devices, [&](const std::string& name) {
                              return context.host->exists(nodes / "devices" / name);
                            });
      if (!has_node) {
        return fail(Errc::failed, fmt::format("{} is bound, but /dev/vfio/{} is not there",
                                              function->address.text(), function->iommu_group.value_or(0)));
      }
      continue;
    }
    // If the kernel chose, any driver is right except a vfio driver.
    if (member.driver_after == kKernelsChoice && on_vfio_driver(*function)) {
      return fail(
          Errc::failed,
          fmt::format("the kernel has given {} to {} again", function->address.text(),
                      function->driver.value_or("vfio")),
          "an ids= option of vfio-pci names it (/etc/modprobe.d, kernel command line): `ferry doctor` looks");
    }
    if (member.driver_after != kKernelsChoice && function->driver.value_or("") != member.driver_after)
      return not_as_planned(*function, member.driver_after.empty() ? "none" : member.driver_after);
  }
  if (direction == Direction::to_vfio) {
    for (const std::uint32_t group : rebind.groups) {
      if (const auto blockers = viability_blockers(*now, group); !blockers.empty()) {
        return fail(Errc::failed,
                    fmt::format("group {} is still blocked by {}", group, blockers.front().text()));
      }
    }
  }
  return {};
}

// Fills in the drivers that the kernel chose. A GPU may have none if its driver is installed later, and a
// note then says so.
void report_choice(const RebindContext& context, const Inventory& before, Rebind& rebind) {
  const auto left_to_the_kernel = [](const Member& member) { return member.driver_after == kKernelsChoice; };
  if (std::ranges::none_of(rebind.members, left_to_the_kernel)) return;
  const auto now = scan_members_again(*context.host, rebind.groups, all_members(rebind), before);
  if (!now) return;
  for (Member& member : rebind.members) {
    const PciFunction* function = now->find(member.address);
    if (!left_to_the_kernel(member) || function == nullptr) continue;
    member.driver_after = function->driver.value_or("");
    if (function->driver || member.role != MemberRole::accelerator) continue;
    rebind.notes.push_back(
        fmt::format("{} has no driver now: none that is loaded takes it, and one that is loaded later will; "
                    "`ferry vfio bind --device {}` has it on vfio again",
                    member.address.text(), rebind.devices.front().text()));
  }
}

// The functions that `steps` unbind.
std::set<PciAddress> taken_by(const std::vector<Step>& steps) {
  std::set<PciAddress> out;
  for (const Step& step : steps)
    if (step.kind == Step::Kind::unbind) out.insert(step.address);
  return out;
}

// Obstacles to taking functions from vfio again: a VM may have opened them in the meantime.
std::vector<std::string> against_undo(const RebindContext& context, const Inventory& now,
                                      const Rebind& undoing, Fence& fence) {
  if (taken_by(undoing.steps).empty()) return {};
  if (auto closed = fence.close(now, undoing); !closed) return {closed.error().message};
  const auto rebinding = undoing.rebinding();
  auto use = context.probe->look(use_questions(*context.host, now, rebinding));
  if (!use) return {use.error().message};
  std::vector<std::string> troubles;
  if (!use->blind.empty()) troubles.push_back(use->blind);
  for (const PciAddress& address : rebinding) {
    if (const auto why = use->unseen.find(address.text()); why != use->unseen.end())
      troubles.push_back(why->second);
    for (const DeviceUser& user : use->of(address.text())) {
      if (user.only_a_screen()) continue;  // the change was made in spite of it
      troubles.push_back(fmt::format("{} is in use meanwhile: {}", address.text(), user.text()));
    }
  }
  return troubles;
}

struct Undone {
  std::vector<std::string> troubles;
  bool hangs = false;
};

// Rolls a unit back to its record.
Undone undo(const RebindContext& context, const Rebind& rebind) {
  const auto rebinding = rebind.rebinding();
  auto now = scan_unit_to_undo(context, rebind);
  auto journal = read_undo_journal(*context.host);
  if (!now || !journal) return {.troubles = {now ? journal.error().message : now.error().message}};
  for (const std::uint32_t group : rebind.groups) {
    const auto lost = journal->unreadable.find(group);
    if (lost != journal->unreadable.end()) return {.troubles = {lost->second.message}};
  }
  find_lost_modules(*context.host, *now, *journal);
  Rebind undoing = rebind;
  undoing.steps = plan_undo(*now, *journal, rebinding).steps;
  Fence fence(*context.host, context.driver_lock);
  std::vector<std::string> troubles = against_undo(context, *now, undoing, fence);
  if (!troubles.empty()) {
    // A bind of a function without a driver takes it from no user.
    std::erase_if(undoing.steps, [taken = taken_by(undoing.steps)](const Step& step) {
      return taken.contains(step.address);
    });
  }
  const auto failures = perform_each(context, undoing.steps);
  for (const Failure& failure : failures) troubles.push_back(failure.error.message);
  if (hangs(failures)) {
    fence.abandon_locks();
    return {.troubles = std::move(troubles), .hangs = true};
  }
  if (!troubles.empty()) return {.troubles = std::move(troubles)};
  auto after = scan_unit_to_undo(context, rebind);
  if (!after) return {.troubles = {after.error().message}};
  const Undo left = plan_undo(*after, *journal, rebinding);
  troubles = left.notes;
  for (const Step& step : left.steps) {
    // A probe may find no driver: a function without one is then the best result, and no trouble.
    if (step.kind != Step::Kind::probe) troubles.push_back("still to do: " + step.text());
  }
  for (const PciAddress& address : rebinding) {
    if (const PciFunction* function = after->find(address); function != nullptr && function->override_unread)
      troubles.push_back(fmt::format("driver_override of {} cannot be read", address.text()));
  }
  if (troubles.empty()) {
    if (auto forgotten = erase_from_undo_journal(*context.host, rebinding); !forgotten)
      troubles.push_back(forgotten.error().message);
  }
  return {.troubles = std::move(troubles)};
}

// Binds a function to vfio again if the host's driver does not take it. Without a driver no VM could use it,
// and the next unbind would not begin where this one did.
std::vector<Failure> stay_on_vfio(const RebindContext& context, const Inventory& before, const Rebind& rebind,
                                  const std::vector<Failure>& failures) {
  const auto now = scan_unit_to_undo(context, rebind);
  if (!now) return {};
  OverrideSteps overrides;
  std::vector<Step> binds;
  for (const Failure& failure : failures) {
    const PciFunction* was = before.find(failure.step.address);
    const PciFunction* function = now->find(failure.step.address);
    if (was == nullptr || function == nullptr || !on_vfio_driver(*was)) continue;
    if (function->driver && function->driver != was->driver) continue;
    if (!function->override_unread)
      add_override(*function, was->driver.value_or(""), was->driver_override, "it stays on vfio", overrides);
    if (!function->driver) {
      binds.push_back({.kind = Step::Kind::bind,
                       .address = function->address,
                       .value = was->driver.value_or(""),
                       .why = "it stays on vfio"});
    }
  }
  std::vector<Step> steps = std::move(overrides.before_bind);
  steps.insert(steps.end(), binds.begin(), binds.end());
  steps.insert(steps.end(), overrides.after_bind.begin(), overrides.after_bind.end());
  return perform_each(context, steps);
}

// Adds the places of functions that the unbind has not returned to their drivers.
Error with_places(const RebindContext& context, const Inventory& before, const Rebind& rebind, Error error) {
  const auto now = scan_members_again(*context.host, rebind.groups, all_members(rebind), before);
  if (!now) return error;
  for (const Member& member : rebind.members) {
    const PciFunction* function = now->find(member.address);
    if (function == nullptr || !changes_driver(member.role)) continue;
    const bool as_planned = member.driver_after == kKernelsChoice
                                ? !on_vfio_driver(*function)
                                : function->driver.value_or("") == member.driver_after;
    if (as_planned) continue;
    error.message += function->driver
                         ? fmt::format("; {} stays on {}", member.address.text(), *function->driver)
                         : fmt::format("; {} has no driver now", member.address.text());
  }
  if (error.hint.empty()) {
    error.hint = fmt::format(
        "mend that and run the same command again: the record is kept. To give an earlier driver up, remove "
        "/run/ferry/hostd/moves/{}.json: the kernel chooses then",
        fmt::join(rebind.groups, ".json, /run/ferry/hostd/moves/"));
  }
  return error;
}

// Forgets functions that another program bound to vfio and that show no trace of the failed unbind: Ferry has
// nothing left to finish there.
void forget_unchanged(const RebindContext& context, const Rebind& rebind) {
  const auto now = scan_unit_to_undo(context, rebind);
  const auto journal = read_undo_journal(*context.host);
  if (!now || !journal) return;
  std::vector<PciAddress> stays;
  for (const PciAddress& address : rebind.rebinding()) {
    const PciFunction* function = now->find(address);
    const auto found = journal->members.find(address);
    if (function != nullptr && found != journal->members.end() && found->second.kernels_choice &&
        on_vfio_driver(*function) && !function->override_unread &&
        function->driver_override == found->second.driver_override)
      stays.push_back(address);
  }
  (void)erase_from_undo_journal(*context.host, stays);  // a record that stays is true all the same
}

// While a load of the module is stuck, a second load would hang too.
Result<> load(const RebindContext& context, const Step& step) {
  const auto stuck = stuck_writes(*context.host);
  if (!stuck) return fail(stuck.error());
  if (std::ranges::any_of(*stuck, [&](const StuckWrite& act) { return concerns(act, step.value); }))
    return fail(Errc::stuck, "an earlier load has not returned", "see /run/ferry/stuck-writes");
  if (context.on_step) context.on_step(step);
  auto loaded = context.writer->load_module(step.value);
  if (loaded) return loaded;
  Error& error = loaded.error();
  if (error.hint.empty()) error.hint = hint_of_blocked_module(*context.host, step.value);
  // The caller adds the step to the message.
  const std::string done = step.text() + ": ";
  if (error.message.starts_with(done)) error.message.erase(0, done.size());
  return loaded;
}

}  // namespace

Result<> perform(const RebindContext& context, const Step& step) {
  if (step.of_a_device_user()) return {};  // several units may share it: see StoppedServices
  if (step.kind == Step::Kind::load_module) return load(context, step);
  if (context.on_step) context.on_step(step);
  if (const auto write = write_of(step)) return context.writer->write(write->path, write->value);
  return {};
}

Applied apply_unit(const RebindContext& context, const Inventory& before, Rebind& rebind,
                   Direction direction) {
  if (auto recorded = record_before(context, before, rebind, direction); !recorded)
    return {.done = std::move(recorded)};
  Result<> done;
  if (direction == Direction::to_vfio) {
    std::size_t next = 0;
    done = perform_some(context, rebind.steps, next);
  } else {
    // A failure does not stop the others: each function that gets its driver is a gain.
    auto failures = perform_each(context, rebind.steps);
    if (!failures.empty() && !hangs(failures)) {
      auto staying = stay_on_vfio(context, before, rebind, failures);
      if (hangs(staying)) failures.push_back(std::move(staying.back()));
    }
    // The first error is reported, with the number of failures; a hang comes before all others.
    if (hangs(failures)) {
      done = fail(std::move(failures.back().error));
    } else if (!failures.empty()) {
      Error& first = failures.front().error;
      if (failures.size() > 1) first.message += fmt::format(" (and {} more failed)", failures.size() - 1);
      done = fail(std::move(first));
    }
  }
  if (done) done = verify(context, before, rebind, direction);
  if (done) report_choice(context, before, rebind);
  if (done)
    return {.done = direction == Direction::back ? erase_from_undo_journal(*context.host, rebind.unbound())
                                                 : Result<>()};
  // A driver that has not returned keeps its device's lock, so further writes would only queue.
  if (done.error().code == Errc::stuck) return {.done = std::move(done), .hangs = true};
  if (direction == Direction::back) {
    forget_unchanged(context, rebind);
    return {.done = fail(with_places(context, before, rebind, std::move(done).error()))};
  }
  // Functions that were on vfio before stay there: a VM may use them.
  if (take_nothing(rebind.steps)) return {.done = std::move(done)};

  const Undone undone = undo(context, rebind);
  Error error = std::move(done).error();
  if (undone.troubles.empty()) {
    error.message += "; everything written to this group was taken back";
  } else {
    error.message += "; taking it back failed too";
    for (const std::string& trouble : undone.troubles) error.message += ": " + trouble;
    if (error.hint.empty())
      error.hint = "run the same command again, or `ferry vfio unbind`: the record is kept";
  }
  return {.done = fail(std::move(error)), .hangs = undone.hangs};
}

}  // namespace ferry::vfio
