// SPDX-License-Identifier: Apache-2.0
#include "vgpu-dm/gpu_run.h"

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <mutex>
#include <span>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/counted.h"
#include "mdev/vgpu_inventory.h"
#include "mdev/vgpu_writes.h"
#include "mdev/virtual_functions.h"
#include "vgpu-dm/gpu_preparation.h"
#include "vgpu-dm/step_effects.h"
#include "vgpu-dm/type_names.h"
#include "vgpu-dm/type_table.h"

namespace ferry {
namespace {

// Removals, functions off, MIG mode, functions on, instances gone and made, moves, creations, parameters,
// then perhaps once more what somebody else did meanwhile.
constexpr int kMostStages = 11;
// The way back has as many.
constexpr int kMostUndoStages = 6;

// A driver may answer a write before what was asked for is seen.
constexpr int kMostLooks = 10;
constexpr std::chrono::milliseconds kBetweenLooks{100};
// A daemon of the driver's may have to register the functions that have come.
constexpr std::chrono::seconds kBetweenLooksForTypes{1};

// The tool that switches functions binds a GPU anew, one after the other as its own "ALL" does, and needs a
// lock that the library's open handle keeps from it, whichever GPU is asked about.
std::mutex& driver_calls() {
  static std::mutex mutex;
  return mutex;
}

constexpr const char* kPlacementHint =
    "which placement IDs there are depends on the GPU, the type and what else is on it; without placement "
    "the driver chooses";

bool is_errno(const Error& error, int number) {
  return error.code == std::error_code(number, std::generic_category());
}

class GpuRun {
 public:
  GpuRun(const VgpuHost& on, const GpuPlanner& planner, const Inventory& inventory, VgpuView first,
         const GpuPlan& plan, const StepObserver& observe)
      : on_(on), planner_(planner), inventory_(&inventory), view_(std::move(first)), observe_(observe) {
    outcome_.index = plan.index;
    outcome_.gpu = plan.gpu;
    outcome_.notes = plan.notes;
  }

  GpuOutcome run(const GpuPlan& first) {
    if (first.refusal) return end(GpuOutcome::Kind::refused, *first.refusal);
    if (!first.matched) return end(GpuOutcome::Kind::left_alone);
    if (first.steps.empty()) return end(GpuOutcome::Kind::already_so);

    const VgpuGpu before = *gpu();
    managed_before_ = managed();
    for (int stage = 0; stage < kMostStages; ++stage) {
      const auto plan = next_plan(stage == 0 ? Users::as_before : Users::ask);
      if (!plan) return fail_and_undo(before, Error(plan.error()));
      if (const auto& refusal = plan->refusal) {
        if (outcome_.done.empty()) return end(GpuOutcome::Kind::refused, *refusal);
        return fail_and_undo(before, *refusal);
      }
      if (plan->steps.empty()) {
        return end(outcome_.done.empty() ? GpuOutcome::Kind::already_so : GpuOutcome::Kind::changed);
      }
      if (auto r = do_stage(plan->steps); !r) {
        const bool untouched = r.error().code == Errc::refused && outcome_.done.empty();
        if (untouched) return end(GpuOutcome::Kind::refused, std::move(r).error());
        return fail_and_undo(before, std::move(r).error());
      }
    }
    return fail_and_undo(before,
                         Error{.code = Errc::failed,
                               .message = before.label() + ": what was written did not hold when read back",
                               .hint = "something else may be creating or removing vGPUs on this node"});
  }

 private:
  enum class Users { ask, as_before };

  // That nothing is left to do may be said from the devices alone; what is, is planned from a whole look.
  // With Users::ask: somebody may have made what is to be touched, and a VM been given it, since the last
  // question.
  Result<GpuPlan> next_plan(Users users) {
    GpuPlan plan = planner_.plan(view_, *gpu());
    if (only_devices_are_fresh_ && (plan.refusal || !plan.steps.empty())) {
      if (auto r = look_again(Users::as_before); !r) return fail(std::move(r).error());
      plan = planner_.plan(view_, *gpu());
    }
    if (users == Users::ask && !plan.steps.empty() && !plan.steps.front().only_adds()) {
      if (auto r = look_again(Users::ask); !r) return fail(std::move(r).error());
      plan = planner_.plan(view_, *gpu());
    }
    return plan;
  }

  /// The last thing that is done: the outcome goes.
  GpuOutcome end(GpuOutcome::Kind kind, std::optional<Error> error = {}) {
    outcome_.kind = kind;
    outcome_.error = std::move(error);
    return std::move(outcome_);
  }

  VgpuGpu* gpu() {
    return &*std::ranges::find(view_.inventory.gpus, outcome_.gpu,
                               [](const VgpuGpu& g) { return g.address(); });
  }

  // What the library said, if it was asked and knew.
  std::optional<ManagedGpu> managed() const {
    const auto found = view_.managed.find(outcome_.gpu);
    if (found == view_.managed.end() || !found->second) return std::nullopt;
    return *found->second;
  }

  // It is slow: asked again only about what one of its own stages, or the functions, may have changed.
  void ask_library_again() {
    if (!library_is_stale_ && (view_.managed.contains(outcome_.gpu) || !planner_.asks_library(*gpu())))
      return;
    view_.managed.insert_or_assign(outcome_.gpu, ask_library(on_, outcome_.gpu));
    library_is_stale_ = false;
    if (!prepared_ && !managed_before_) managed_before_ = managed();
  }

  Result<> look_again(Users users) {
    auto now = scan_known_gpu_again(on_.host, *inventory_, *gpu());
    if (!now) return fail(std::move(now).error());
    *gpu() = std::move(*now);
    only_devices_are_fresh_ = false;
    ask_library_again();
    if (auto kept = remember_names(on_.host, {gpu(), 1}); !kept && outcome_.notes.empty())
      outcome_.notes.push_back("the names of vGPU types are not kept: " + kept.error().message);
    if (users == Users::as_before) return {};
    auto use = ask(on_.uses, gpu()->devices);
    if (!use) return fail(std::move(use).error());
    view_.use = std::move(*use);
    return {};
  }

  // Enough behind writes to vGPUs: a whole look reads every type of every function and costs more than they.
  void look_at_devices() {
    scan_devices_again(on_.host, *inventory_, *gpu());
    only_devices_are_fresh_ = true;
  }

  // The tool binds the GPU anew: one GPU after the other, as its own "ALL" does.
  Result<> switch_functions(const VgpuStep& step) {
    const VfSwitch vfs{.host = on_.host, .writer = on_.writer, .deadline = on_.deadline, .pause = on_.pause};
    Result<> done;
    {
      const std::lock_guard lock(driver_calls());
      if (auto free = still_free(step); !free || *free == Functions::already_there)
        return free ? rescan() : fail(Error(free.error()));
      done = step.kind == VgpuStep::Kind::enable_vfs ? enable_vfs(vfs, step.parent, step.number)
                                                     : disable_vfs(vfs, step.parent);
    }
    // Also where it failed: some may have come.
    auto seen = rescan();
    return done ? seen : done;
  }

  Result<> rescan() {
    auto inventory = scan(on_.host);
    if (!inventory) return fail(std::move(inventory).error());
    own_ = std::move(*inventory);
    inventory_ = &own_;
    return {};
  }

  // Others may have switched them, and put vGPUs on them, while this GPU waited for its turn.
  enum class Functions { to_be_switched, already_there };
  Result<Functions> still_free(const VgpuStep& step) {
    if (auto r = rescan(); !r) return fail(std::move(r).error());
    auto now = scan_known_gpu_again(on_.host, *inventory_, *gpu());
    if (!now) return fail(std::move(now).error());
    if (!now->devices.empty()) {
      return fail(Errc::refused, fmt::format("it carries {} by now", counted(now->devices.size(), "vGPU")),
                  "something else may be creating vGPUs on this node");
    }
    const bool there = step.kind == VgpuStep::Kind::enable_vfs && now->function.sriov_numvfs > 0;
    return there ? Functions::already_there : Functions::to_be_switched;
  }

  Result<> write_now(const VgpuStep& step) {
    const VgpuStep::Target target = step.target();
    if (target == VgpuStep::Target::vgpu) return write_vgpu(step);
    library_is_stale_ = view_.managed.contains(outcome_.gpu);
    prepared_ = true;
    if (target == VgpuStep::Target::functions) return switch_functions(step);
    const std::lock_guard lock(driver_calls());
    return have_library_do(*on_.management, step);
  }

  Result<> write_vgpu(const VgpuStep& step) {
    if (step.kind != VgpuStep::Kind::set_placement) {
      const AttributeWrite write = write_of(step);
      auto done = on_.writer.write_in_order({&write, 1}, {});
      if (!done) {
        note_failure(step, done.error());
        return fail(explained(step, std::move(done).error()));
      }
    }
    const auto& placement = step.placement;
    if (!placement) return {};
    auto placed = place(step, *placement);
    if (!placed) note_failure(step, placed.error());
    return placed;
  }

  void note_failure(const VgpuStep& step, const Error& error) {
    if (step.kind == VgpuStep::Kind::create && !is_errno(error, EEXIST)) failed_creation_ = step;
  }

  static Error held_by_a_vm(const Error& error) {
    return {.code = Errc::refused, .message = "a VM holds it: " + error.message, .hint = "stop the VM first"};
  }

  // The first free place may well be the one that is asked for.
  Result<> place(const VgpuStep& step, std::uint32_t placement) const {
    const AttributeWrite write = placement_write(step.framework, step.parent, step.id, placement);
    if (const auto now = on_.host.read_attribute(write.path); now && *now == write.value) return {};
    auto done = on_.writer.write(write.path, write.value);
    if (done) return done;
    Error error = std::move(done).error();
    if (is_errno(error, EPERM)) return fail(held_by_a_vm(error));
    if (error.hint.empty()) error.hint = kPlacementHint;
    return fail(std::move(error));
  }

  // What can still be made changes with each vGPU that is made, by whomever.
  bool is_offered(const VgpuStep& step) const {
    return available_now(on_.host, step.framework, step.parent, step.type_id).value_or(1) > 0;
  }

  Error explained(const VgpuStep& step, Error error) const {
    if (step.kind == VgpuStep::Kind::create && error.code != Errc::stuck && !is_offered(step)) {
      return {.code = Errc::failed,
              .message = fmt::format("{} no longer offers {}: {}", step.parent.text(), step.short_name,
                                     error.message),
              .hint = "something else may be creating vGPUs on this node"};
    }
    const bool tells = step.kind == VgpuStep::Kind::set_params ||
                       (step.kind == VgpuStep::Kind::remove && step.framework == VgpuFramework::vendor_vfio);
    if (!tells || !is_errno(error, EPERM)) return error;
    return held_by_a_vm(error);
  }

  Result<> write(const VgpuStep& step) {
    auto done = write_now(step);
    if (!done) done = fail(std::move(done).error().during(step.text()));
    if (observe_) observe_(step, done);
    return done;
  }

  void succeeded(const VgpuStep& step) {
    if (observe_) observe_(step, {});
    outcome_.done.push_back(step);
  }

  // Handed to the writing process together: to wait for each would cost as much again as they do.
  Result<> write_together(std::span<const VgpuStep> steps) {
    std::vector<AttributeWrite> writes;
    writes.reserve(steps.size());
    for (const VgpuStep& step : steps) writes.push_back(write_of(step));
    for (std::size_t done_before = 0; done_before < steps.size();) {
      std::size_t at = done_before;
      const auto begin = [&](std::size_t begun) {
        for (; at < done_before + begun; ++at) succeeded(steps[at]);
      };
      auto done = on_.writer.write_in_order(std::span(writes).subspan(done_before), begin);
      if (done) {
        begin(steps.size() - done_before);
        return {};
      }
      const VgpuStep& step = steps[at];
      // Removed by somebody else since the scan: what was wanted.
      const bool gone = step.kind == VgpuStep::Kind::remove && is_gone(done.error());
      note_failure(step, done.error());
      done = fail(explained(step, std::move(done).error()).during(step.text()));
      if (observe_) observe_(step, done);
      if (!gone) return done;
      done_before = at + 1;
    }
    return {};
  }

  Result<> write_each(std::span<const VgpuStep> steps) {
    for (const VgpuStep& step : steps) {
      if (auto done = write(step); !done) return done;
      outcome_.done.push_back(step);
    }
    return {};
  }

  // The steps of one kind that come first: creations wait until a scan has seen the removals.
  Result<> do_stage(const std::vector<VgpuStep>& steps) {
    const auto end =
        std::ranges::find_if(steps, [&](const VgpuStep& step) { return step.kind != steps.front().kind; });
    const std::span<const VgpuStep> stage(steps.begin(), end);
    // Each is put in its place before the next is made (placement.h).
    const bool placed =
        std::ranges::any_of(stage, [](const VgpuStep& step) { return step.placement.has_value(); });
    auto done = stage.front().target() == VgpuStep::Target::vgpu && !placed ? write_together(stage)
                                                                            : write_each(stage);
    if (!done) return done;
    return read_back(stage);
  }

  Result<> read_back(std::span<const VgpuStep> steps) {
    for (int look = 1;; ++look) {
      if (steps.front().target() == VgpuStep::Target::vgpu) {
        look_at_devices();
      } else {
        library_is_stale_ = view_.managed.contains(outcome_.gpu);
        if (auto r = look_again(Users::as_before); !r) return r;
      }
      const auto said = view_.managed.find(outcome_.gpu);
      Result<> held;
      for (const VgpuStep& step : steps) {
        held = verify(step, *gpu(), said == view_.managed.end() ? nullptr : &said->second);
        if (!held) break;
      }
      // A daemon of the driver's may register the functions one by one.
      const bool all_there =
          steps.front().kind != VgpuStep::Kind::enable_vfs || gpu()->parents.size() >= steps.front().number;
      if ((held && all_there) || look == kMostLooks) return held;
      const bool of_functions = steps.front().target() == VgpuStep::Target::functions;
      on_.pause(of_functions ? kBetweenLooksForTypes : kBetweenLooks);
    }
  }

  GpuOutcome fail_and_undo(const VgpuGpu& before, Error error) {
    if (error.code == Errc::stuck) {
      outcome_.undo_errors.push_back(
          {.code = Errc::stuck,
           .message = before.label() + ": left as it is, since a write has not returned",
           .hint = {}});
    } else if (auto undone = undo(before); !undone) {
      outcome_.undo_errors.push_back(std::move(undone).error());
    }
    return end(GpuOutcome::Kind::failed, std::move(error));
  }

  // In stages too: a virtual function takes another type only once the one before has gone. Each write that
  // fails is kept as an error of its own, and the others are still made; but what follows from a stage that
  // failed is not begun.
  Result<> undo(const VgpuGpu& before) {
    const auto vgpus = [&](VgpuStep::Kind kind) {
      return [&, kind] {
        auto steps = plan_undo(with_strangers(before), *gpu(), view_.use);
        std::erase_if(steps, [kind](const VgpuStep& step) { return step.kind != kind; });
        return steps;
      };
    };
    const auto preparation = [&] { return undo_of_preparation(before); };
    // Functions first: switching them off would take GPU instances that were put back.
    for (const VgpuStep::Kind kind : {VgpuStep::Kind::remove, VgpuStep::Kind::disable_vfs}) {
      if (kind == VgpuStep::Kind::disable_vfs && !outcome_.undo_errors.empty()) break;
      if (auto r = undo_stage(vgpus(kind)); !r) return r;
    }
    for (int stage = 0; stage < kMostUndoStages && outcome_.undo_errors.empty(); ++stage) {
      if (auto r = undo_stage(preparation); !r) return r;
      if (undo_of_preparation(before).empty()) break;
    }
    for (const VgpuStep::Kind kind :
         {VgpuStep::Kind::set_placement, VgpuStep::Kind::create, VgpuStep::Kind::set_params}) {
      if (auto r = undo_stage(vgpus(kind)); !r) return r;
    }
    if (auto r = look_again(Users::as_before); !r) return fail(std::move(r).error().during("undo"));
    auto left = plan_undo(with_strangers(before), *gpu(), {});
    std::ranges::move(undo_of_preparation(before), std::back_inserter(left));
    if (!outcome_.undo_errors.empty()) return {};
    if (!left.empty()) return fail(Errc::failed, fmt::format("undo: still to do: {}", left.front().text()));
    auto lost = not_put_back(before, *gpu());
    if (const auto now = managed(); now && managed_before_)
      std::ranges::move(preparation_not_put_back(*managed_before_, *now), std::back_inserter(lost));
    if (lost.empty()) return {};
    return fail(Errc::failed, fmt::format("undo: {}", fmt::join(lost, "; ")),
                "something else has made vGPUs on it meanwhile, which stay");
  }

  // What somebody else has made meanwhile is not ours to take away: it counts as if it had been there.
  VgpuGpu with_strangers(VgpuGpu before) {
    const std::vector<VgpuDevice> known = before.devices;
    const auto is = [](const VgpuDevice& device) {
      return
          [&device](const auto& other) { return other.id == device.id && other.type_id == device.type_id; };
    };
    for (const VgpuDevice& device : gpu()->devices) {
      const bool ours = std::ranges::any_of(outcome_.done,
                                            [&](const VgpuStep& step) {
                                              return step.kind == VgpuStep::Kind::create && is(device)(step);
                                            }) ||
                        (failed_creation_ && is(device)(*failed_creation_));
      if (!ours && std::ranges::none_of(known, is(device))) before.devices.push_back(device);
    }
    return before;
  }

  std::vector<VgpuStep> undo_of_preparation(const VgpuGpu& before) {
    const auto now = managed();
    if (!managed_before_ || !now) return {};
    return plan_undo_preparation(*gpu(), before.function.sriov_numvfs > 0, *managed_before_, *now);
  }

  // Behind a write that has not returned nothing more is written.
  template <typename Steps>
  Result<> undo_stage(const Steps& steps) {
    const auto& errors = outcome_.undo_errors;
    if (!errors.empty() && errors.back().code == Errc::stuck) return {};
    if (auto r = look_again(Users::ask); !r) return fail(std::move(r).error().during("undo"));
    std::vector<VgpuStep> removed;
    for (const VgpuStep& step : steps()) {
      auto done = write(step);
      if (done) {
        if (step.kind == VgpuStep::Kind::remove) removed.push_back(step);
        continue;
      }
      outcome_.undo_errors.push_back(std::move(done).error().during("undo"));
      if (errors.back().code == Errc::stuck) return {};
    }
    // A function on which the one before is still seen takes no other. What does not go is told at the end.
    if (!removed.empty()) (void)read_back(removed);
    return look_again(Users::as_before);
  }

  const VgpuHost& on_;
  const GpuPlanner& planner_;
  std::optional<ManagedGpu> managed_before_;
  bool library_is_stale_ = false;
  bool prepared_ = false;  // something but a vGPU was changed
  const Inventory* inventory_;
  Inventory own_;  // once virtual functions have come or gone
  VgpuView view_;
  bool only_devices_are_fresh_ =
      false;  // in view_: what can still be made is as it was before the last stage
  std::optional<VgpuStep> failed_creation_;  // it may have come all the same
  const StepObserver& observe_;
  GpuOutcome outcome_;
};

}  // namespace

Result<ManagedGpu> ask_library(const VgpuHost& on, const PciAddress& gpu) {
  if (on.management == nullptr) return fail(Errc::unsupported, "there is no library of the driver to ask");
  const std::lock_guard lock(driver_calls());
  return on.management->read(gpu);
}

Result<UseReport> ask(UseProbe& uses, const std::vector<VgpuDevice>& devices) {
  if (devices.empty()) return UseReport{};
  std::vector<UseQuestion> questions;
  questions.reserve(devices.size());
  for (const VgpuDevice& device : devices) questions.push_back(use_question(device));
  return uses.look(questions);
}

GpuOutcome run_gpu(const VgpuHost& on, const GpuPlanner& planner, const Inventory& inventory, VgpuView view,
                   const GpuPlan& first, const StepObserver& observe) {
  return GpuRun(on, planner, inventory, std::move(view), first, observe).run(first);
}

}  // namespace ferry
