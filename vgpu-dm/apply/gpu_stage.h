// SPDX-License-Identifier: Apache-2.0
// The run of one GPU through its plan. gpu_run.cpp chooses the stages and rolls back; gpu_stage.cpp scans the
// GPU, and writes and verifies one stage.
#pragma once

#include <algorithm>
#include <cerrno>
#include <optional>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include "common/result.h"
#include "mdev/gpu_management.h"
#include "mdev/vgpu.h"
#include "mdev/virtual_functions.h"
#include "vfio/bind/rebind_apply.h"
#include "vfio/pci/inventory.h"
#include "vgpu-dm/apply/apply.h"
#include "vgpu-dm/apply/gpu_run.h"
#include "vgpu-dm/apply/vgpu_step.h"
#include "vgpu-dm/plan/plan.h"

namespace ferry::vgpu {

/// The state of one run. A member keeps what later stages and the roll back need.
class GpuRun {
 public:
  GpuRun(const VgpuHost& on, const GpuPlanner& planner, const vfio::Inventory& inventory, VgpuSnapshot first,
         const GpuPlan& plan, const StepObserver& observe)
      : on_(on), planner_(planner), inventory_(&inventory), snapshot_(std::move(first)), observe_(observe) {
    outcome_.index = plan.index;
    outcome_.gpu = plan.gpu;
    outcome_.notes = plan.notes;
  }

  /// Does the work of run_gpu(), with its result.
  GpuOutcome run(const GpuPlan& first, SnapshotAge age);
  /// Undoes a run that had succeeded. Returns an error for each part that is not restored.
  std::vector<Error> put_back(const GpuOutcome& changed);

 private:
  enum class Users { ask, as_before };
  enum class Functions { to_be_switched, already_there };
  /// The fate of the functions of removed vGPUs, if vfio/ unbinds them.
  enum class After { functions_stay, functions_go };

  // gpu_run.cpp
  Result<GpuPlan> next_plan(Users users);
  /// Must be the last call: moves the outcome out.
  GpuOutcome end(GpuOutcome::Kind kind, std::optional<Error> error = {});
  GpuOutcome refused(const GpuPlan& plan);
  GpuOutcome fail_and_undo(const mdev::VgpuGpu& before, Error error);
  Result<> undo(const mdev::VgpuGpu& before);
  mdev::VgpuGpu with_strangers(mdev::VgpuGpu before);
  bool functions_of_strangers() { return gpu()->function.sriov_numvfs > 0 && !functions_are_ours_; }
  std::vector<VgpuStep> undo_of_preparation(const mdev::VgpuGpu& before);
  template <typename Steps>
  Result<> undo_stage(const Steps& steps);

  // gpu_stage.cpp: scans
  mdev::VgpuGpu* gpu() {
    return &*std::ranges::find(snapshot_.inventory.gpus, outcome_.gpu,
                               [](const mdev::VgpuGpu& g) { return g.address(); });
  }
  // The library's answer; absent: it was not asked, or gave none.
  std::optional<mdev::ManagedGpu> managed() const {
    const auto found = snapshot_.managed.find(outcome_.gpu);
    if (found == snapshot_.managed.end() || !found->second) return std::nullopt;
    return *found->second;
  }
  Result<> can_be_put_back(const mdev::VgpuGpu& before);
  void ask_library_again();
  Result<> look_again(Users users);
  void look_at_devices(std::span<const VgpuStep> steps);
  Result<> rescan();
  Result<Functions> still_free(const VgpuStep& step);
  Result<> read_back(std::span<const VgpuStep> steps);

  // gpu_stage.cpp: writes
  mdev::VfSwitch vf_switch() const {
    return {.host = on_.host, .writer = on_.writer, .deadline = on_.deadline, .pause = on_.pause};
  }
  Result<> do_stage(const std::vector<VgpuStep>& steps);
  Result<> write_stage(std::span<const VgpuStep> stage, bool placed, After after);
  Result<> write_each(std::span<const VgpuStep> steps);
  Result<> write_together(std::span<const VgpuStep> steps);
  Result<> remove_all(std::span<const VgpuStep> steps);
  Result<> rebind_all(std::span<const VgpuStep> steps, After after);
  Result<> write(const VgpuStep& step);
  Result<> write_now(const VgpuStep& step);
  Result<> write_vgpu(const VgpuStep& step);
  Result<> write_attribute_of(const VgpuStep& step);
  Result<> switch_functions(const VgpuStep& step);
  Result<> keep_users_away(std::span<const VgpuStep> removals, RemovalFence& fence);
  Result<vfio::RebindOutcome> rebind_functions(std::span<const VgpuStep> steps, After after);
  // The result of one of the steps that rebind_functions() was called with.
  static Result<> rebound_to(const Result<vfio::RebindOutcome>& outcome, const VgpuStep& step);
  void note_failure(const VgpuStep& step, const Error& error) {
    if (step.kind == VgpuStep::Kind::create && error.code != std::error_code(EEXIST, std::generic_category()))
      failed_creation_ = step;
  }
  void succeeded(const VgpuStep& step) {
    if (observe_) observe_(step, {});
    outcome_.done.push_back(step);
  }

  const VgpuHost& on_;
  const GpuPlanner& planner_;
  std::optional<mdev::ManagedGpu> managed_before_;
  bool library_is_stale_ = false;
  bool prepared_ = false;            // functions or modes were changed, not only vGPUs
  bool functions_are_ours_ = false;  // this run was the last to switch them on
  const vfio::Inventory* inventory_;
  vfio::Inventory own_;  // used once virtual functions have come or gone
  VgpuSnapshot snapshot_;
  bool only_devices_are_fresh_ =
      false;  // in snapshot_: the numbers of vGPUs still available are older than the last stage
  std::optional<VgpuStep> failed_creation_;  // it may exist all the same
  std::optional<mdev::VgpuId> misplaced_;    // it exists, but not at its placement
  const StepObserver& observe_;
  GpuOutcome outcome_;
};

}  // namespace ferry::vgpu
