// SPDX-License-Identifier: Apache-2.0
#include "vgpu-dm/apply/gpu_run.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <span>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "vgpu-dm/plan/gpu_preparation.h"
#include "vgpu-dm/plan/plan_parts.h"

namespace ferry::vgpu {
namespace {

// Removals, functions off, MIG mode, functions on, instances removed and made, moves, creations, parameters;
// the rest repeats stages that other programs disturbed.
constexpr int kMostStages = 11;
// Functions off, MIG mode, functions on, instances removed and made, mixed sizes.
constexpr int kMostUndoStages = 6;

}  // namespace

GpuOutcome GpuRun::run(const GpuPlan& first, bool is_old) {
  if (first.refusal) return refused(first);
  if (!first.matched) return end(GpuOutcome::Kind::unmanaged);
  if (first.steps.empty()) return end(GpuOutcome::Kind::already_so);
  if (is_old) {
    if (auto r = look_again_with_users(); !r) return end(GpuOutcome::Kind::refused, std::move(r).error());
  }

  before_.gpu = *gpu();
  // A rollback does not bring back the 0 that an earlier run of Ferry left.
  if (before_.gpu.vf_autoprobe_left_off) before_.gpu.vf_autoprobe = true;
  before_.managed = managed();
  for (int stage = 0; stage < kMostStages; ++stage) {
    const auto plan = next_plan(stage == 0);
    if (!plan) return fail_and_undo(Error(plan.error()));
    if (const auto& refusal = plan->refusal) {
      if (outcome_.done.empty()) return refused(*plan);
      return fail_and_undo(*refusal);
    }
    if (plan->steps.empty()) {
      if (outcome_.done.empty()) return end(GpuOutcome::Kind::already_so);
      outcome_.before = std::move(before_);
      return end(GpuOutcome::Kind::changed);
    }
    if (auto r = do_stage(plan->steps); !r) {
      const bool untouched = r.error().code == Errc::refused && outcome_.done.empty();
      if (untouched) return end(GpuOutcome::Kind::refused, std::move(r).error());
      return fail_and_undo(std::move(r).error());
    }
  }
  return fail_and_undo({.code = Errc::failed,
                        .message = before_.gpu.label() + ": what was written did not hold when read back",
                        .hint = "something else may be creating or removing vGPUs on this node"});
}

std::vector<Error> GpuRun::put_back(const GpuOutcome& changed) {
  outcome_.done = changed.done;
  before_ = changed.before.value();
  // The library is asked again, also about a GPU that has no functions now.
  library_is_stale_ = before_.managed.has_value();
  if (auto looked = look_again(); !looked) return {std::move(looked).error()};
  if (auto undone = can_be_put_back(); !undone) return {std::move(undone).error()};
  if (auto undone = undo(); !undone) outcome_.undo_errors.push_back(std::move(undone).error());
  return std::move(outcome_.undo_errors);
}

// A plan without steps may be made from a scan of the devices alone; steps are planned from a complete
// scan. After the first stage users are probed again: another program may have made a vGPU and given it to a
// VM since.
Result<GpuPlan> GpuRun::next_plan(bool is_first) {
  GpuPlan plan = planner_.plan(snapshot_, *gpu());
  if (only_devices_are_fresh_ && (plan.refusal || !plan.steps.empty())) {
    if (auto r = look_again(); !r) return fail(std::move(r).error());
    plan = planner_.plan(snapshot_, *gpu());
  }
  if (!is_first && !plan.steps.empty() && !plan.steps.front().only_adds()) {
    if (auto r = look_again_with_users(); !r) return fail(std::move(r).error());
    plan = planner_.plan(snapshot_, *gpu());
  }
  return plan;
}

GpuOutcome GpuRun::end(GpuOutcome::Kind kind, std::optional<Error> error) {
  outcome_.kind = kind;
  outcome_.error = std::move(error);
  return std::move(outcome_);
}

GpuOutcome GpuRun::refused(const GpuPlan& plan) {
  outcome_.reasons = plan.reasons;
  return end(GpuOutcome::Kind::refused, plan.refusal);
}

GpuOutcome GpuRun::fail_and_undo(Error error) {
  if (error.code == Errc::stuck) {
    outcome_.undo_errors.push_back(
        {.code = Errc::stuck,
         .message = before_.gpu.label() + ": left as it is, since a write has not returned"});
  } else if (auto undone = undo(); !undone) {
    outcome_.undo_errors.push_back(std::move(undone).error());
  }
  return end(GpuOutcome::Kind::failed, std::move(error));
}

// Rolls back in stages too: a virtual function takes another type only once its vGPU is gone. Each failed
// write is kept as an error, and the other writes of its stage are still made. A stage that depends on a
// failed one is not begun; no stage depends on the first, that of the parameters.
Result<> GpuRun::undo() {
  const auto vgpus = [&](VgpuStep::Kind kind) {
    return [&, kind] {
      auto steps = plan_undo(before_with_strangers(), *gpu(), snapshot_.use);
      std::erase_if(steps, [kind](const VgpuStep& step) { return step.kind != kind; });
      return steps;
    };
  };
  const auto preparation = [&] { return undo_of_preparation(); };
  // Parameters first: those of a whole virtual function can be set only while it is a vGPU.
  if (!before_.params.empty()) {
    if (auto r = undo_stage([&] { return undo_of_params(); }); !r) return r;
  }
  const auto failed = [this, of_params = outcome_.undo_errors.size()] {
    return outcome_.undo_errors.size() > of_params;
  };
  // Functions first: switching them off would delete restored GPU instances.
  for (const VgpuStep::Kind kind :
       {VgpuStep::Kind::remove, VgpuStep::Kind::disable_vfs, VgpuStep::Kind::set_autoprobe}) {
    if (kind == VgpuStep::Kind::disable_vfs && failed()) break;
    if (kind == VgpuStep::Kind::set_autoprobe && vgpus(kind)().empty()) continue;
    if (auto r = undo_stage(vgpus(kind)); !r) return r;
  }
  for (int stage = 0; stage < kMostUndoStages && !failed(); ++stage) {
    if (auto r = undo_stage(preparation); !r) return r;
    if (undo_of_preparation().empty()) break;
  }
  // Restores functions where the library's answer is missing.
  if (!failed()) {
    if (auto r = undo_stage(vgpus(VgpuStep::Kind::enable_vfs)); !r) return r;
  }
  for (const VgpuStep::Kind kind :
       {VgpuStep::Kind::set_placement, VgpuStep::Kind::create, VgpuStep::Kind::set_params}) {
    if (auto r = undo_stage(vgpus(kind)); !r) return r;
  }
  if (auto r = look_again(); !r) return fail(std::move(r).error().during("undo"));
  auto left = plan_undo(before_with_strangers(), *gpu(), {});
  std::ranges::move(undo_of_preparation(), std::back_inserter(left));
  if (!outcome_.undo_errors.empty()) return {};
  if (!left.empty()) return fail(Errc::failed, fmt::format("undo: still to do: {}", left.front().text()));
  if (before_.managed && before_.prepared && !managed()) {
    return fail(Error(snapshot_.managed.at(outcome_.gpu).error())
                    .during("undo: Ferry cannot find out whether MIG mode, GPU instances and mixed sizes "
                            "are as before"));
  }
  auto lost = not_put_back(before_with_strangers(), *gpu());
  const char* hint = lost.empty() ? "" : "something else has made vGPUs on it meanwhile, which stay";
  if (const auto now = managed(); now && before_.managed)
    std::ranges::move(preparation_not_put_back(*before_.managed, *now), std::back_inserter(lost));
  if (lost.empty()) return {};
  return fail(Errc::failed, fmt::format("undo: {}", fmt::join(lost, "; ")), hint);
}

// vGPUs and functions that another program has made since stay: they count as if they were there before.
mdev::VgpuGpu GpuRun::before_with_strangers() {
  mdev::VgpuGpu before = before_.gpu;
  const std::vector<mdev::VgpuDevice>& known = before_.gpu.devices;
  const auto is = [](const mdev::VgpuDevice& device) {
    return [&device](const auto& other) { return other.id == device.id && other.type_id == device.type_id; };
  };
  for (const mdev::VgpuDevice& device : gpu()->devices) {
    const bool ours = std::ranges::any_of(outcome_.done,
                                          [&](const VgpuStep& step) {
                                            return step.kind == VgpuStep::Kind::create && is(device)(step);
                                          }) ||
                      (failed_creation_ && is(device)(*failed_creation_));
    if (!ours && std::ranges::none_of(known, is(device))) before.devices.push_back(device);
  }
  if (functions_of_strangers()) before.function.sriov_numvfs = gpu()->function.sriov_numvfs;
  return before;
}

std::vector<VgpuStep> GpuRun::undo_of_params() {
  std::vector<VgpuStep> steps;
  for (const mdev::VgpuDevice& device : gpu()->devices) {
    const auto had = before_.params.find(device.id);
    const bool differs = had != before_.params.end() && device.params != had->second;
    if (!differs || !snapshot_.use.of(device.id.text).empty()) continue;
    steps.push_back(params_of(*gpu(), device, had->second.empty() ? " " : had->second, "it had them before"));
  }
  return steps;
}

std::vector<VgpuStep> GpuRun::undo_of_preparation() {
  const auto now = managed();
  if (!before_.managed || !now) return {};
  auto steps = plan_undo_preparation(*gpu(), before_.gpu.function.sriov_numvfs > 0, *before_.managed, *now,
                                     snapshot_.use);
  // Functions of another program keep the mode as it is.
  if (functions_of_strangers() && !steps.empty() && steps.front().kind == VgpuStep::Kind::disable_vfs)
    return {};
  return steps;
}

// After a stuck write nothing more is written.
template <typename Steps>
Result<> GpuRun::undo_stage(const Steps& steps) {
  const auto& errors = outcome_.undo_errors;
  if (!errors.empty() && errors.back().code == Errc::stuck) return {};
  if (auto r = look_again_with_users(); !r) return fail(std::move(r).error().during("undo"));
  std::vector<VgpuStep> awaited;
  for (const VgpuStep& step : steps()) {
    auto done = write(step);
    if (done) {
      const bool takes_time = step.kind == VgpuStep::Kind::remove || step.kind == VgpuStep::Kind::enable_vfs;
      if (takes_time) awaited.push_back(step);
      continue;
    }
    outcome_.undo_errors.push_back(std::move(done).error().during("undo"));
    if (errors.back().code == Errc::stuck) return {};
  }
  // A function with a vGPU that is still visible, or without types yet, takes no vGPU. The final check
  // reports a vGPU or function that does not come or go.
  if (!awaited.empty()) (void)read_back(awaited);
  return look_again();
}

Result<vfio::UseReport> ask(
    const VgpuHost& on, const vfio::Inventory& inventory, std::span<const mdev::VgpuGpu> gpus,
    const std::function<std::vector<vfio::PciAddress>(const mdev::VgpuGpu&)>& besides) {
  std::vector<vfio::UseQuestion> questions;
  for (const mdev::VgpuGpu& gpu : gpus) {
    for (const mdev::VgpuDevice& device : gpu.devices) questions.push_back(mdev::use_question(device));
    for (vfio::UseQuestion& question : vfio::use_questions(on.host, inventory, besides(gpu))) {
      const auto same = [&](const vfio::UseQuestion& known) { return known.device == question.device; };
      const auto known = std::ranges::find_if(questions, same);  // asked about as a vGPU
      if (known == questions.end()) {
        questions.push_back(std::move(question));
      } else {
        std::ranges::move(question.nodes, std::back_inserter(known->nodes));
      }
    }
  }
  if (questions.empty()) return vfio::UseReport{};
  return on.uses.look(questions);
}

}  // namespace ferry::vgpu
