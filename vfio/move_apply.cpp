// SPDX-License-Identifier: Apache-2.0
#include "vfio/move_apply.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <iterator>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "common/stuck_writes.h"
#include "vfio/driver_modules.h"
#include "vfio/driver_override.h"
#include "vfio/stopped_services.h"
#include "vfio/unit_move.h"

namespace ferry {
namespace {

/// All that a plan is made from, looked at together.
struct Look {
  Inventory inventory;
  VfioDriverTable drivers;
  MoveRecord record;
  UseReport use;
  std::set<std::string> stuck;
};

Error gone(const PciAddress& device) {
  return {.code = make_error_code(Errc::not_found),
          .message = "there is no PCI function " + device.text() + " any more",
          .hint = {}};
}

// `accelerators` that are gone are passed over.
Result<Look> look(const MoveContext& context, const std::vector<PciAddress>& accelerators) {
  Look out;
  auto inventory = scan(*context.host);
  if (!inventory) return fail(std::move(inventory).error());
  out.inventory = std::move(*inventory);
  out.drivers = VfioDriverTable::read(*context.host);
  auto record = read_records(*context.host);
  if (!record) return fail(std::move(record).error());
  out.record = std::move(*record);
  find_lost_modules(*context.host, out.inventory, out.record);

  std::vector<PciAddress> there;
  std::ranges::copy_if(accelerators, std::back_inserter(there),
                       [&](const PciAddress& device) { return out.inventory.find(device) != nullptr; });
  const auto members = concerned(out.inventory, there);
  read_overrides(*context.host, *context.writer, members, out.inventory);
  auto use = context.probe->look(use_questions(*context.host, out.inventory, members));
  if (!use) return fail(std::move(use).error().during("ask who uses the devices"));
  out.use = std::move(*use);

  auto stuck = stuck_writes(*context.host);
  if (!stuck) return fail(std::move(stuck).error());
  for (const StuckWrite& write : *stuck) {
    if (is_read(write)) continue;  // read_overrides() tells
    for (const PciAddress& address : members) {
      if (concerns(write, address.text())) out.stuck.insert(address.text());
    }
  }
  return out;
}

MovePlan plan(const MoveContext& context, const Look& seen, const MoveRequest& request, Direction direction) {
  if (direction == Direction::back)
    return plan_unbind(seen.inventory, context.rules, request, seen.use, seen.record, seen.stuck);
  MoveRequest possible = request;
  // A module needs no service manager to go.
  if (context.releaser == nullptr)
    std::erase_if(possible.release, [](const std::string& name) { return name != kConsoleModule; });
  possible.persistence_by_gpu = context.persistence != nullptr;
  return plan_bind(seen.inventory, context.rules, possible, seen.use, seen.drivers, seen.stuck);
}

/// What the first look leaves of a request.
struct FirstLook {
  Look seen;
  MoveRequest request;               ///< of what is there
  std::vector<PciAddress> vanished;  ///< since they were chosen: each a failure of its own
};

// What is asked for by name must be there, and all must be possible on this host.
Result<FirstLook> look_at_all(const MoveContext& context, const MoveRequest& request, Direction direction) {
  auto seen = look(context, request.accelerators);
  if (!seen) return fail(std::move(seen).error());
  if (direction == Direction::to_vfio) {
    if (auto iommu = require_iommu(seen->inventory); !iommu) return fail(std::move(iommu).error());
  }
  FirstLook out{.seen = std::move(*seen), .request = request, .vanished = {}};
  out.request.accelerators.clear();
  for (const PciAddress& device : request.accelerators) {
    if (out.seen.inventory.find(device) != nullptr) {
      out.request.accelerators.push_back(device);
    } else if (request.by_name.contains(device)) {
      return fail(gone(device));
    } else {
      out.vanished.push_back(device);
    }
  }
  return out;
}

std::vector<std::string> notes_of(const Look& seen) {
  std::vector<std::string> notes = seen.use.unknown;
  notes.insert(notes.end(), seen.record.notes.begin(), seen.record.notes.end());
  return notes;
}

MoveResult refused(Refusal refusal) {
  MoveResult result;
  result.status = MoveResult::Status::refused;
  result.devices = refusal.devices;
  result.refusal = std::move(refusal);
  return result;
}

MoveResult result_of(MoveResult::Status status, Move move) {
  MoveResult result;
  result.status = status;
  result.devices = move.devices;
  result.move = std::move(move);
  return result;
}

MoveResult failed(Move move, Error error) {
  MoveResult result = result_of(MoveResult::Status::failed, std::move(move));
  result.error = std::move(error);
  return result;
}

MoveResult already(const MoveContext& context, Move move, Direction direction) {
  // Killed between its record and its first write, an earlier run leaves a record of what never moved.
  if (direction == Direction::back) {
    if (auto forgotten = forget(*context.host, move.moving()); !forgotten) {
      return failed(std::move(move), std::move(forgotten).error());
    }
  }
  return result_of(MoveResult::Status::already, std::move(move));
}

// Of what is no longer there nothing more is known.
Move move_of(const PciAddress& device) {
  Move move;
  move.devices = {device};
  return move;
}

bool is_load(const Step& step) {
  return step.kind == Step::Kind::load_module;
}

/// Probes and callers are asked and told by one thread at a time.
class OneAtATime final : public UseProbe {
 public:
  explicit OneAtATime(const MoveContext& context) : probe_(context.probe), on_step_(context.on_step) {}
  Result<UseReport> look(std::span<const UseQuestion> questions) override {
    const std::lock_guard lock(mutex_);
    return probe_->look(questions);
  }
  MoveContext around(MoveContext context) {
    context.probe = this;
    if (on_step_) {
      context.on_step = [this](const Step& step) {
        const std::lock_guard lock(mutex_);
        on_step_(step);
      };
    }
    return context;
  }

 private:
  UseProbe* probe_;
  std::function<void(const Step&)> on_step_;
  std::mutex mutex_;
};

constexpr std::size_t kMostSideBySide = 16;

// Calls job(0) .. job(count - 1), several at a time: most of a move is waiting for drivers.
template <typename Job>
void side_by_side(std::size_t count, const Job& job) {
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    for (std::size_t i = next++; i < count; i = next++) job(i);
  };
  std::vector<std::jthread> threads;
  try {
    while (threads.size() + 1 < std::min(count, kMostSideBySide)) threads.emplace_back(work);
  } catch (const std::system_error&) {
    // No more threads to be had: those there are do it all.
  }
  work();
}

/// The units on their way from the first plan to their results.
class Apply {
 public:
  Apply(const MoveContext& context, const MoveRequest& request, Direction direction,
        StoppedServices& services)
      : context_(context), request_(request), direction_(direction), services_(services) {}

  /// Takes what went before the first plan was made.
  void begin(const std::vector<PciAddress>& vanished) {
    for (const PciAddress& device : vanished) results_.push_back(failed(move_of(device), gone(device)));
  }
  /// Takes what a plan found.
  void begin(MovePlan plan) {
    for (Refusal& refusal : plan.refusals) results_.push_back(refused(std::move(refusal)));
    for (Move& move : plan.moves) {
      if (move.steps.empty()) {
        results_.push_back(already(context_, std::move(move), direction_));
      } else {
        moves_.push_back(std::move(move));
      }
    }
  }
  bool anything_left() const { return !moves_.empty(); }
  std::size_t side_by_side_at_most() const { return std::min(moves_.size(), kMostSideBySide); }
  /// The one behind the fence; empty when nothing was left to look for.
  const Look& last_look() const { return seen_; }

  /// In the order of Releasable for all units together: what one of them waits for may hold another's device.
  void let_go(const Inventory& inventory) {
    const auto planned = users_of_modules();
    stop_all(Releasable::Kind::persistence);
    stop_what_holds_on(inventory);
    stop_all(Releasable::Kind::service);
    keep_modules_that_are_needed(planned);
    stop_all(Releasable::Kind::module);
  }

  /// A driver is there before anything else is touched: what fails here has changed nothing of a unit. Going
  /// back it is one step of many, since a function without its driver keeps no other from its own.
  void load_modules() {
    if (direction_ == Direction::back) return;
    std::map<std::string, std::optional<Error>> loaded;
    each_unit([&](Move& move) -> std::optional<MoveResult> {
      for (const Step& step : move.steps) {
        if (step.of_a_holder()) continue;
        if (!is_load(step)) break;
        auto known = loaded.find(step.value);
        if (known == loaded.end()) {
          auto done =
              is_stuck(step.value)
                  ? Result<>(fail(Errc::stuck, "an earlier load has not returned", "see /run/ferry/stuck"))
                  : perform(context_, step);
          known = loaded.emplace(step.value, done ? std::nullopt : std::optional(done.error())).first;
        }
        if (known->second) {
          return failed(std::move(move), Error(*known->second).during(step.text()));
        }
      }
      return std::nullopt;
    });
  }

  void close_fences(const Inventory& inventory) {
    each_unit([&](Move& move) -> std::optional<MoveResult> {
      Fence fence(*context_.host, context_.driver_lock);
      if (auto closed = fence.close(inventory, move); !closed) {
        if (closed.error().code != Errc::refused) {
          return failed(std::move(move), std::move(closed).error());
        }
        return refused({.devices = move.devices,
                        .groups = move.groups,
                        .reasons = {closed.error().message},
                        .hint = closed.error().hint});
      }
      fences_.emplace(move.devices.front(), std::move(fence));
      return std::nullopt;
    });
  }

  /// A loaded module or somebody else may have changed the host, and a VM may have started: each unit is
  /// planned once more from what is seen behind the fence.
  void plan_again() {
    auto seen = look(context_, devices());
    if (!seen) {
      each_unit(
          [&](Move& move) -> std::optional<MoveResult> { return failed(std::move(move), seen.error()); });
      return;
    }
    seen_ = std::move(*seen);
    each_unit([&](Move& move) -> std::optional<MoveResult> {
      for (const PciAddress& device : move.devices) {
        if (seen_.inventory.find(device) == nullptr) return failed(std::move(move), gone(device));
      }
      return std::nullopt;
    });
    MoveRequest request = request_;
    request.accelerators = devices();
    moves_.clear();
    begin(plan(context_, seen_, request, direction_));
    open_fences_of_others();
    if (direction_ == Direction::back) return;
    each_unit([&](Move& move) -> std::optional<MoveResult> {
      if (const Step& first = move.steps.front(); first.kind == Step::Kind::let_go) {
        const std::string who =
            first.holder.kind == Releasable::Kind::persistence ? kPersistenced : first.holder.name;
        return refused({.devices = move.devices,
                        .groups = move.groups,
                        .reasons = {who + " holds a device of the group although it was to let go"},
                        .hint = "find out what starts it meanwhile, or stop it first"});
      }
      if (!is_load(move.steps.front())) {
        tell_released(move);
        return std::nullopt;
      }
      const std::string module = move.steps.front().value;
      return failed(std::move(move), {.code = make_error_code(Errc::failed),
                                      .message = "module " + module + " is loaded but brought no PCI driver",
                                      .hint = {}});
    });
    open_fences_of_others();
  }

  std::vector<MoveResult> carry_out_all() {
    std::vector<MoveResult> done(moves_.size());
    side_by_side(moves_.size(), [&](std::size_t i) {
      Move& move = moves_[i];
      auto moved = carry_out(context_, seen_.inventory, move, direction_);
      open_fences_of(move, !moved && moved.error().code == Errc::stuck);
      if (moved) {
        done[i] = result_of(MoveResult::Status::done, std::move(move));
      } else {
        done[i] = failed(std::move(move), std::move(moved).error());
      }
    });
    std::move(done.begin(), done.end(), std::back_inserter(results_));
    return std::move(results_);
  }

 private:
  bool is_stuck(const std::string& module) const {
    const auto stuck = stuck_writes(*context_.host);
    return stuck && std::ranges::any_of(*stuck, [&](const StuckWrite& act) { return concerns(act, module); });
  }

  void stop_all(Releasable::Kind kind) {
    each_unit([&](Move& move) -> std::optional<MoveResult> {
      for (const Step& step : move.steps) {
        if (step.kind != Step::Kind::let_go) break;
        if (step.holder.kind != kind) continue;
        auto stopped = services_.stop(step.holder);
        // A GPU that the daemon cannot be asked for is seen to hold on: its whole service stops then.
        const bool other_way =
            kind == Releasable::Kind::persistence && !stopped && stopped.error().code != Errc::stuck;
        if (!stopped && !other_way) {
          return failed(std::move(move), std::move(stopped).error().during(step.text()));
        }
        if (stopped) note_released(move, step.holder);
      }
      return std::nullopt;
    });
  }

  using UsersOfModules = std::map<std::string, std::size_t>;
  UsersOfModules users_of_modules() const {
    UsersOfModules users;
    for (const Move& move : moves_) {
      for (const Step& step : move.steps) {
        if (step.kind == Step::Kind::let_go && step.holder.kind == Releasable::Kind::module)
          ++users[step.holder.name];
      }
    }
    return users;
  }

  // A module lets go of all its devices at once, and the plan has it that all of them move: of none, then,
  // when a unit has dropped out since.
  void keep_modules_that_are_needed(const UsersOfModules& planned) {
    for (auto now = users_of_modules(), before = UsersOfModules(); now != before;
         before = std::exchange(now, users_of_modules())) {
      each_unit([&](Move& move) -> std::optional<MoveResult> {
        for (const Step& step : move.steps) {
          if (step.kind != Step::Kind::let_go || step.holder.kind != Releasable::Kind::module ||
              now[step.holder.name] == planned.at(step.holder.name))
            continue;
          return refused(
              {.devices = move.devices,
               .groups = move.groups,
               .reasons = {step.holder.name + " is not unloaded: another GPU that it serves stays"},
               .hint = "see what keeps that one"});
        }
        return std::nullopt;
      });
    }
  }

  // That the tool of a driver succeeded proves nothing.
  void stop_what_holds_on(const Inventory& inventory) {
    std::vector<PciAddress> asked;
    for (const Move& move : moves_) {
      for (const Step& step : move.steps) {
        if (step.kind == Step::Kind::let_go && step.holder.kind == Releasable::Kind::persistence)
          asked.push_back(PciAddress::parse(step.holder.name).value());
      }
    }
    if (asked.empty()) return;
    const auto use = context_.probe->look(use_questions(*context_.host, inventory, asked));
    const auto holds_on = [&](const PciAddress& gpu) {
      return !use || std::ranges::any_of(use->of(gpu.text()), [](const Holder& holder) {
        return holder.service == kPersistenced;
      });
    };
    if (std::ranges::none_of(asked, holds_on)) return;
    const Releasable service{.kind = Releasable::Kind::service, .name = kPersistenced};
    each_unit([&](Move& move) -> std::optional<MoveResult> {
      const auto moving = move.moving();
      if (std::ranges::none_of(moving, [&](const PciAddress& address) {
            return std::ranges::find(asked, address) != asked.end() && holds_on(address);
          }))
        return std::nullopt;
      if (auto stopped = services_.stop(service); !stopped)
        return failed(std::move(move), std::move(stopped).error().during(service.letting_go()));
      note_released(move, service);
      return std::nullopt;
    });
  }

  void note_released(const Move& move, const Releasable& holder) {
    for (const PciAddress& device : move.devices) released_[device].insert(holder);
  }

  /// Calls f for each unit that is still to move; one that it gives a result for is no longer.
  template <typename F>
  void each_unit(const F& f) {
    std::vector<Move> left;
    for (Move& move : moves_) {
      if (auto result = f(move)) {
        results_.push_back(std::move(*result));
      } else {
        left.push_back(std::move(move));
      }
    }
    moves_ = std::move(left);
  }

  // The plan that is carried out knows nothing of what no longer stands in the way.
  void tell_released(Move& move) const {
    std::set<Releasable> holders;
    for (const PciAddress& device : move.devices) {
      if (const auto found = released_.find(device); found != released_.end())
        holders.insert(found->second.begin(), found->second.end());
    }
    release_around(move, holders);
  }

  // Each fence is one unit's, so units that end side by side do not meet here.
  void open_fences_of(const Move& move, bool stuck) {
    for (const PciAddress& device : move.devices) {
      const auto fence = fences_.find(device);
      if (fence == fences_.end()) continue;
      if (stuck) fence->second.abandon_locks();
      fence->second.open();
    }
  }

  // A VM that a unit was refused for must not find its group held.
  void open_fences_of_others() {
    const auto left = devices();
    std::erase_if(fences_,
                  [&](const auto& fence) { return std::ranges::find(left, fence.first) == left.end(); });
  }

  std::vector<PciAddress> devices() const {
    std::vector<PciAddress> out;
    for (const Move& move : moves_) out.insert(out.end(), move.devices.begin(), move.devices.end());
    return out;
  }

  const MoveContext& context_;
  const MoveRequest& request_;
  const Direction direction_;
  StoppedServices& services_;
  std::map<PciAddress, std::set<Releasable>> released_;  // by accelerator
  std::vector<MoveResult> results_;
  std::vector<Move> moves_;
  std::map<PciAddress, Fence> fences_;  // by a unit's first device
  Look seen_;
};

Result<MoveOutcome> move_all(const MoveContext& context, const MoveRequest& request, Direction direction,
                             StoppedServices& services) {
  context.writer->prepare(1);
  auto first = look_at_all(context, request, direction);
  if (!first) return fail(std::move(first).error());
  MoveOutcome outcome{.results = {}, .notes = notes_of(first->seen)};
  Apply apply(context, request, direction, services);
  apply.begin(first->vanished);
  apply.begin(plan(context, first->seen, first->request, direction));
  apply.let_go(first->seen.inventory);
  apply.load_modules();
  apply.close_fences(first->seen.inventory);
  context.writer->prepare(apply.side_by_side_at_most());  // they start while we look
  if (apply.anything_left()) apply.plan_again();
  for (std::string& note : notes_of(apply.last_look())) {
    if (std::ranges::find(outcome.notes, note) == outcome.notes.end())
      outcome.notes.push_back(std::move(note));
  }
  const auto begin = std::chrono::steady_clock::now();
  outcome.results = apply.carry_out_all();
  outcome.applied = std::chrono::steady_clock::now() - begin;
  return outcome;
}

}  // namespace

Result<MovePreview> preview_moves(const MoveContext& context, const MoveRequest& request,
                                  Direction direction) {
  auto first = look_at_all(context, request, direction);
  if (!first) return fail(std::move(first).error());
  auto stopped = notes_on_stopped_services(*context.host);
  if (!stopped) return fail(std::move(stopped).error());
  MovePreview preview{.plan = plan(context, first->seen, first->request, direction),
                      .notes = notes_of(first->seen)};
  for (const PciAddress& device : first->vanished) {
    preview.plan.refusals.push_back(
        {.devices = {device}, .groups = {}, .reasons = {gone(device).message}, .hint = {}});
  }
  preview.notes.insert(preview.notes.end(), stopped->begin(), stopped->end());
  return preview;
}

Result<MoveOutcome> start_what_was_stopped(const MoveContext& context) {
  StoppedServices services(context);
  if (auto read = services.take_over(); !read) return fail(std::move(read).error());
  auto restart = services.start_all();
  return MoveOutcome{.results = {}, .notes = std::move(restart.notes), .errors = std::move(restart.errors)};
}

Result<MoveOutcome> apply_moves(const MoveContext& context, const MoveRequest& request, Direction direction) {
  OneAtATime shared(context);
  const MoveContext guarded = shared.around(context);
  StoppedServices services(guarded);
  if (auto read = services.take_over(); !read) return fail(std::move(read).error());
  auto outcome = move_all(guarded, request, direction, services);
  auto restart = services.start_all();
  if (outcome) {
    std::ranges::move(restart.notes, std::back_inserter(outcome->notes));
    outcome->errors = std::move(restart.errors);
  } else {
    for (const Error& error : restart.errors) outcome.error().message += "; " + error.message;
  }
  return outcome;
}

}  // namespace ferry
