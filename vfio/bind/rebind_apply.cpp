// SPDX-License-Identifier: Apache-2.0
#include "vfio/bind/rebind_apply.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/side_by_side.h"
#include "common/text/text.h"
#include "hostfs/stuck_writes.h"
#include "vfio/bind/driver_choice.h"
#include "vfio/bind/driver_modules.h"
#include "vfio/bind/undo_journal.h"
#include "vfio/judgement/unit_facts.h"
#include "vfio/pci/kernel_options.h"
#include "vfio/quiesce/quiesce_plan.h"
#include "vfio/quiesce/stopped_services.h"

namespace ferry::vfio {
namespace {

RebindResult refused(Refusal refusal) {
  return {.status = RebindResult::Status::refused, .devices = refusal.devices, .refusal = std::move(refusal)};
}

RebindResult refused(const Rebind& rebind, std::string reason, std::string hint) {
  return refused({.devices = rebind.devices,
                  .groups = rebind.groups,
                  .reasons = {std::move(reason)},
                  .hint = std::move(hint)});
}

RebindResult result_of(RebindResult::Status status, Rebind rebind) {
  return {.status = status, .devices = rebind.devices, .rebind = std::move(rebind)};
}

RebindResult failed(Rebind rebind, Error error) {
  RebindResult result = result_of(RebindResult::Status::failed, std::move(rebind));
  result.error = std::move(error);
  return result;
}

struct RebindSnapshot {
  Inventory inventory;
  VfioDriverTable drivers;
  UndoJournal journal;
  UseReport use;
  std::set<std::string> stuck;  ///< addresses with a stuck write
  /// Members with mediated devices. A VM uses a mediated device through that device's own group, for which no
  /// probe was asked.
  std::map<PciAddress, std::size_t> mediated;

  /// Questions without an answer, void records; for a bind also variant drivers that may be missed.
  std::vector<std::string> notes(Direction direction) const {
    std::vector<std::string> out = use.unknown;
    out.insert(out.end(), journal.notes.begin(), journal.notes.end());
    if (direction == Direction::to_vfio && !drivers.warning().empty()) out.push_back(drivers.warning());
    return out;
  }
};

/// The first snapshot, and the part of the request that is still there.
struct FirstSnapshot {
  RebindSnapshot snapshot;
  RebindRequest request;             ///< without the vanished accelerators
  std::vector<PciAddress> vanished;  ///< gone since they were chosen: each is a failure of its own
};

/// Errc::not_found: "there is no PCI function 0000:17:00.0 any more".
Error gone(const PciAddress& device) {
  return {.code = Errc::not_found, .message = "there is no PCI function " + device.text() + " any more"};
}

/// Takes a snapshot; `accelerators` that are gone are skipped. `scanned` as for preview_rebinds(). Errors:
/// the host cannot be scanned, the records cannot be listed, or no probe for device users works.
Result<RebindSnapshot> take_snapshot(const RebindContext& context,
                                     const std::vector<PciAddress>& accelerators,
                                     const std::set<PciAddress>& with, const Inventory* scanned = nullptr) {
  RebindSnapshot out;
  auto inventory = scanned != nullptr ? Result<Inventory>(*scanned) : scan(*context.host);
  if (!inventory) return fail(std::move(inventory).error());
  out.inventory = std::move(*inventory);
  if (!out.inventory.vm_nodes) read_unit_facts(*context.host, context.rules, out.inventory);
  out.drivers = VfioDriverTable::read(*context.host);
  auto journal = read_undo_journal(*context.host);
  if (!journal) return fail(std::move(journal).error());
  out.journal = std::move(*journal);
  find_lost_modules(*context.host, out.inventory, out.journal);

  std::vector<PciAddress> there;
  std::ranges::copy_if(accelerators, std::back_inserter(there),
                       [&](const PciAddress& device) { return out.inventory.find(device) != nullptr; });
  auto along = out.journal.gone_along();
  along.insert(with.begin(), with.end());
  const auto members = concerned(out.inventory, there, along);
  wake_sleepers(*context.host, members, out.inventory);
  read_overrides(*context.host, *context.writer, members, out.inventory);
  auto use = context.probe->look(use_questions(*context.host, out.inventory, members));
  if (!use) return fail(std::move(use).error().during("ask who uses the devices"));
  out.use = std::move(*use);
  // Mediated devices are sys/devices/.../0000:01:00.0/UUID/mdev_type.
  // ABI: Documentation/driver-api/vfio-mediated-device.rst
  for (const PciAddress& address : members) {
    constexpr std::size_t kUuid = 36;  // in letters
    const auto path = sysfs_path(address);
    const auto entries = context.host->entries(path).value_or(std::vector<DirectoryEntry>{});
    const auto count = std::ranges::count_if(entries, [&](const DirectoryEntry& entry) {
      return entry.is_directory && entry.name.size() == kUuid &&
             context.host->link_name(path / entry.name / "mdev_type").has_value();
    });
    if (count > 0) out.mediated.emplace(address, static_cast<std::size_t>(count));
  }

  auto stuck = stuck_writes(*context.host);
  if (!stuck) return fail(std::move(stuck).error());
  out.stuck = stuck_functions(*stuck, out.inventory);  // read_overrides() reports reads
  return out;
}

RebindPlan plan(const RebindContext& context, const RebindSnapshot& snapshot, const RebindRequest& request,
                Direction direction) {
  if (direction == Direction::back)
    return plan_unbind(snapshot.inventory, context.rules, request, snapshot.use, snapshot.journal,
                       snapshot.stuck);
  RebindRequest possible = request;
  possible.release = possible_release(std::move(possible.release), context.service_manager);
  for (const auto& [address, count] : snapshot.mediated) {
    if (!request.sheds_functions.contains(address))
      possible.untouchable.emplace(address, "carries " + counted(count, "mediated device"));
  }
  possible.persistence_by_gpu = context.persistence != nullptr;
  return plan_bind(snapshot.inventory, context.rules, possible, snapshot.use, snapshot.drivers,
                   snapshot.journal, snapshot.stuck);
}

/// Takes the first snapshot, in which accelerators of `by_name` must exist. Errors as preview_rebinds().
Result<FirstSnapshot> take_first_snapshot(const RebindContext& context, const RebindRequest& request,
                                          const Inventory* scanned) {
  auto snapshot = take_snapshot(context, request.accelerators, request.with, scanned);
  if (!snapshot) return fail(std::move(snapshot).error());
  FirstSnapshot out{.snapshot = std::move(*snapshot), .request = request, .vanished = {}};
  out.request.accelerators.clear();
  for (const PciAddress& device : request.accelerators) {
    if (out.snapshot.inventory.find(device) != nullptr) {
      out.request.accelerators.push_back(device);
    } else if (request.by_name.contains(device)) {
      return fail(gone(device));
    } else {
      out.vanished.push_back(device);
    }
  }
  return out;
}

RebindResult already(const RebindContext& context, Rebind rebind, Direction direction) {
  // A run killed between its record and its first write has left a record of functions that never changed.
  if (direction == Direction::back) {
    if (auto forgotten = erase_from_undo_journal(*context.host, rebind.unbound()); !forgotten)
      return failed(std::move(rebind), std::move(forgotten).error());
  }
  return result_of(RebindResult::Status::already, std::move(rebind));
}

bool is_load(const Step& step) {
  return step.kind == Step::Kind::load_module;
}

RebindContext guarded_by(OneAtATime& one, RebindContext context) {
  context.probe = &one;
  context.on_step = one.guarded(std::move(context.on_step));
  return context;
}

/// The units between their first plan and their results.
class Apply {
 public:
  Apply(const RebindContext& context, const RebindRequest& request, Direction direction,
        StoppedServices& services)
      : context_(context), request_(request), direction_(direction), services_(services) {}

  /// Changes the units of the first plan side by side. A device that vanished before it is a failure.
  RebindOutcome run(const FirstSnapshot& first) {
    RebindOutcome outcome{.results = {}, .notes = first.snapshot.notes(direction_)};
    for (const PciAddress& device : first.vanished)
      results_.push_back(failed({.devices = {device}}, gone(device)));
    begin(plan(context_, first.snapshot, first.request, direction_));
    quiesce(first.snapshot.inventory);
    load_modules();
    close_fences(first.snapshot.inventory);
    context_.writer->prepare(std::min(rebinds_.size(), kMostSideBySide));  // they start during the next scan
    if (!rebinds_.empty()) plan_again();
    for (std::string& note : snapshot_.notes(direction_)) {
      if (std::ranges::find(outcome.notes, note) == outcome.notes.end())
        outcome.notes.push_back(std::move(note));
    }

    const auto start = std::chrono::steady_clock::now();
    std::vector<RebindResult> done(rebinds_.size());
    side_by_side(rebinds_.size(), [&](std::size_t i) {
      Rebind& rebind = rebinds_[i];
      auto [rebound, hangs] = apply_unit(context_, snapshot_.inventory, rebind, direction_);
      // Each fence belongs to one unit, so units that end side by side share none.
      for (const PciAddress& device : rebind.devices) {
        const auto fence = fences_.find(device);
        if (fence == fences_.end()) continue;
        if (hangs) fence->second.abandon_locks();
        fence->second.open();
      }
      done[i] = rebound ? result_of(RebindResult::Status::done, std::move(rebind))
                        : failed(std::move(rebind), std::move(rebound).error());
    });
    std::move(done.begin(), done.end(), std::back_inserter(results_));
    outcome.applied = std::chrono::steady_clock::now() - start;
    outcome.results = std::move(results_);
    return outcome;
  }

 private:
  void begin(RebindPlan plan) {
    for (Refusal& refusal : plan.refusals) results_.push_back(refused(std::move(refusal)));
    for (Rebind& rebind : plan.rebinds) {
      if (rebind.steps.empty()) {
        results_.push_back(already(context_, std::move(rebind), direction_));
      } else {
        rebinds_.push_back(std::move(rebind));
      }
    }
  }
  /// Quiesces before anything else is touched. A unit whose service or module cannot be quiesced has failed.
  void quiesce(const Inventory& inventory) {
    std::vector<QuiesceRequest> requests;
    requests.reserve(rebinds_.size());
    for (const Rebind& rebind : rebinds_)
      requests.push_back({.devices = rebind.rebinding(), .users = users_quiesced_by(rebind.steps)});
    ferry::vfio::quiesce(context_, inventory, services_, requests);
    auto request = requests.begin();
    each([&](Rebind& rebind) -> std::optional<RebindResult> {
      auto& [devices, users, released, failure, refusal] = *request++;
      for (const PciAddress& device : rebind.devices)
        released_[device].insert(released.begin(), released.end());
      if (failure) return failed(std::move(rebind), std::move(*failure));
      if (!refusal) return std::nullopt;
      return refused(rebind, std::move(refusal->message), std::move(refusal->hint));
    });
  }

  /// Loads drivers before anything else is touched, so that a failure has changed nothing of a unit. In an
  /// unbind a load is one step of many: a function without its driver must not keep others from theirs.
  void load_modules() {
    if (direction_ == Direction::back) return;
    std::map<std::string, std::optional<Error>> loaded;
    each([&](Rebind& rebind) -> std::optional<RebindResult> {
      for (const Step& step : rebind.steps) {
        if (step.of_a_device_user()) continue;
        if (!is_load(step)) break;
        auto known = loaded.find(step.value);
        if (known == loaded.end()) {
          auto done = perform(context_, step);
          known = loaded.emplace(step.value, done ? std::nullopt : std::optional(done.error())).first;
        }
        if (known->second) return failed(std::move(rebind), Error(*known->second).during(step.text()));
      }
      return std::nullopt;
    });
  }

  /// Closes fences side by side: a driver that does not answer for its lock must not delay other units.
  void close_fences(const Inventory& inventory) {
    std::vector<Fence> fences;
    fences.reserve(rebinds_.size());
    for (std::size_t i = 0; i < rebinds_.size(); ++i)
      fences.emplace_back(*context_.host, context_.driver_lock);
    std::vector<Result<>> all_closed(fences.size());
    side_by_side(fences.size(),
                 [&](std::size_t i) { all_closed[i] = fences[i].close(inventory, rebinds_[i]); });
    auto fence = fences.begin();
    auto closed = all_closed.begin();
    each([&](Rebind& rebind) -> std::optional<RebindResult> {
      const Result<> is_closed = std::move(*closed++);
      Fence& of_unit = *fence++;
      if (is_closed) {
        fences_.emplace(rebind.devices.front(), std::move(of_unit));
        return std::nullopt;
      }
      const Error& why = is_closed.error();
      if (why.code != Errc::refused) return failed(std::move(rebind), why);
      return refused(rebind, why.message, why.hint);
    });
  }

  /// Plans each unit again from a snapshot behind the fence. A loaded module or another program may have
  /// changed the host, and a VM may have started.
  void plan_again() {
    auto snapshot = take_snapshot(context_, devices(), request_.with);
    if (!snapshot) return fail_all(snapshot.error());
    snapshot_ = std::move(*snapshot);
    each([&](Rebind& rebind) -> std::optional<RebindResult> {
      for (const PciAddress& device : rebind.devices)
        if (snapshot_.inventory.find(device) == nullptr) return failed(std::move(rebind), gone(device));
      return std::nullopt;
    });
    RebindRequest request = request_;
    request.accelerators = devices();
    if (direction_ != Direction::back && context_.must_stay) {
      auto stay = context_.must_stay(snapshot_.inventory);
      if (!stay) return fail_all(std::move(stay).error().during("scan again for vGPUs"));
      for (auto& [address, why] : *stay) request.untouchable.insert_or_assign(address, std::move(why));
    }
    std::set<PciAddress> fenced;
    for (const Rebind& rebind : rebinds_)
      for (const Step& step : rebind.steps)
        if (step.kind == Step::Kind::unbind) fenced.insert(step.address);
    rebinds_.clear();
    begin(plan(context_, snapshot_, request, direction_));
    refuse_unfenced(fenced);
    open_fences_of_others();
    if (direction_ == Direction::back) return;
    each([&](Rebind& rebind) -> std::optional<RebindResult> {
      if (const Step& first = rebind.steps.front(); first.kind == Step::Kind::quiesce) {
        const Error held = still_in_use(first.user, "a device of the group");
        return refused(rebind, held.message, held.hint);
      }
      if (!is_load(rebind.steps.front())) {
        add_quiesced(rebind);
        return std::nullopt;
      }
      const std::string module = rebind.steps.front().value;
      return failed(std::move(rebind),
                    {.code = Errc::failed,
                     .message = "module " + module + " is loaded but brought no PCI driver",
                     .hint = hint_of_blocked_module(*context_.host, module)});
    });
    open_fences_of_others();
  }

  /// Calls f for each unit of rebinds_; a unit for which f returns a result leaves them.
  template <typename F>
  void each(const F& f) {
    std::vector<Rebind> left;
    for (Rebind& rebind : rebinds_) {
      if (std::optional<RebindResult> result = f(rebind)) {
        results_.push_back(std::move(*result));
      } else {
        left.push_back(std::move(rebind));
      }
    }
    rebinds_ = std::move(left);
  }

  /// The accelerators of the units that are still to change.
  std::vector<PciAddress> devices() const {
    std::vector<PciAddress> out;
    for (const Rebind& rebind : rebinds_) out.insert(out.end(), rebind.devices.begin(), rebind.devices.end());
    return out;
  }

  void fail_all(const Error& error) {
    each([&](Rebind& rebind) -> std::optional<RebindResult> { return failed(std::move(rebind), error); });
  }

  // Adds quiesced services and modules to the new plan, which does not see them as obstacles any more.
  void add_quiesced(Rebind& rebind) const {
    std::set<Releasable> users;
    for (const PciAddress& device : rebind.devices) {
      if (const auto found = released_.find(device); found != released_.end())
        users.insert(found->second.begin(), found->second.end());
    }
    quiesce_around(rebind.steps, users);
  }

  // A fence covers the functions that the first plan unbinds. A function that was bound only after the scan
  // of that plan is not covered, so its users could come after the check for them.
  void refuse_unfenced(const std::set<PciAddress>& fenced) {
    each([&](Rebind& rebind) -> std::optional<RebindResult> {
      for (const Step& step : rebind.steps) {
        if (step.kind != Step::Kind::unbind || fenced.contains(step.address)) continue;
        return refused(
            rebind,
            "the driver of " + step.address.text() + " changed meanwhile: it is on " + step.value + " now",
            "the next run does it: run the same command again");
      }
      return std::nullopt;
    });
  }

  // A VM that caused a refusal must find its group's node free.
  void open_fences_of_others() {
    const auto left = devices();
    std::erase_if(fences_,
                  [&](const auto& fence) { return std::ranges::find(left, fence.first) == left.end(); });
  }

  const RebindContext& context_;
  const RebindRequest& request_;
  const Direction direction_;
  std::vector<Rebind> rebinds_;        ///< units that are still to change
  std::vector<RebindResult> results_;  ///< results of all other units
  StoppedServices& services_;
  std::map<PciAddress, std::set<Releasable>> released_;  // by accelerator
  std::map<PciAddress, Fence> fences_;                   // by a unit's first device
  RebindSnapshot snapshot_;                              ///< from behind the fence; empty if no unit was left
};

std::vector<std::string> give_back_left_locks(const RebindContext& context) {
  if (context.driver_lock == nullptr) return {};
  return release_left_locks(*context.host, *context.driver_lock);
}

Result<RebindOutcome> rebind_all(const RebindContext& context, const RebindRequest& request,
                                 Direction direction, const Inventory* scanned, StoppedServices& services) {
  context.writer->prepare(1);
  auto first = take_first_snapshot(context, request, scanned);
  if (!first) return fail(std::move(first).error());
  return Apply(context, request, direction, services).run(*first);
}

}  // namespace

Result<> RebindResult::check() const {
  if (status == Status::refused)
    return fail(Errc::refused, fmt::format("{}", fmt::join(refusal.reasons, "; ")), refusal.hint);
  if (status == Status::failed)
    return fail(error.value_or(Error{.code = Errc::failed, .message = "its driver has not changed"}));
  return {};
}

const RebindResult* RebindOutcome::find(const PciAddress& accelerator) const {
  const auto found = std::ranges::find_if(results, [&](const RebindResult& result) {
    return std::ranges::find(result.devices, accelerator) != result.devices.end();
  });
  return found == results.end() ? nullptr : &*found;
}

Result<RebindPreview> preview_rebinds(const RebindContext& context, const RebindRequest& request,
                                      Direction direction, const Inventory* scanned) {
  auto first = take_first_snapshot(context, request, scanned);
  if (!first) return fail(std::move(first).error());
  auto stopped = notes_on_stopped_services(*context.host);
  if (!stopped) return fail(std::move(stopped).error());
  RebindPreview preview{.plan = plan(context, first->snapshot, first->request, direction),
                        .notes = first->snapshot.notes(direction)};
  for (const PciAddress& device : first->vanished)
    preview.plan.refusals.push_back({.devices = {device}, .groups = {}, .reasons = {gone(device).message}});
  preview.notes.insert(preview.notes.end(), stopped->begin(), stopped->end());
  return preview;
}

Result<RebindOutcome> start_what_was_stopped(const RebindContext& context) {
  StoppedServices services(context);
  if (auto read = services.take_over(); !read) return fail(std::move(read).error());
  auto notes = give_back_left_locks(context);
  auto restart = services.start_all();
  std::ranges::move(restart.notes, std::back_inserter(notes));
  return RebindOutcome{.results = {}, .notes = std::move(notes), .errors = std::move(restart.errors)};
}

Result<RebindOutcome> apply_rebinds(const RebindContext& context, const RebindRequest& request,
                                    Direction direction, const Inventory* scanned) {
  OneAtATime one(*context.probe);
  const RebindContext guarded = guarded_by(one, context);
  StoppedServices services(guarded);
  if (auto read = services.take_over(); !read) return fail(std::move(read).error());
  auto locks = give_back_left_locks(guarded);
  auto outcome = rebind_all(guarded, request, direction, scanned, services);
  if (outcome) std::ranges::move(locks, std::back_inserter(outcome->notes));
  add_results(services.start_all(), outcome);
  return outcome;
}

Result<RebindOutcome> apply_rebinds_only(const RebindContext& context, RebindRequest request,
                                         Direction direction) {
  request.release.clear();
  OneAtATime one(*context.probe);
  const RebindContext guarded = guarded_by(one, context);
  StoppedServices services(guarded);
  return rebind_all(guarded, request, direction, nullptr, services);
}

}  // namespace ferry::vfio
