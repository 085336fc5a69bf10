// SPDX-License-Identifier: Apache-2.0
// Takes one GPU through its plan, and rolls it back on a failure. Several GPUs may run in parallel, each in a
// thread of its own. gpu_run.cpp chooses the stages and rolls back; gpu_stage.cpp scans the GPU, and writes
// and verifies one stage.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "common/result.h"
#include "common/unique_fd.h"
#include "hostfs/host_fs.h"
#include "hostfs/host_writer.h"
#include "mdev/gpu_management.h"
#include "mdev/vgpu.h"
#include "mdev/virtual_functions.h"
#include "vfio/bind/rebind_apply.h"
#include "vfio/pci/inventory.h"
#include "vgpu-dm/apply/apply.h"
#include "vgpu-dm/plan/plan.h"
#include "vgpu-dm/plan/vgpu_step.h"

namespace ferry::vgpu {

struct GpuPlanner {
  /// Plans the change of one GPU in a snapshot.
  std::function<GpuPlan(const VgpuSnapshot&, const mdev::VgpuGpu&)> plan;
  /// True if the plan needs the driver's library's answer about the GPU.
  std::function<bool(const mdev::VgpuGpu&)> asks_library = [](const mdev::VgpuGpu&) { return false; };
  /// True if the plan depends on the names of the vGPUs' types. The library is then asked for names that the
  /// driver does not list.
  std::function<bool(const mdev::VgpuGpu&)> reads_names = [](const mdev::VgpuGpu&) { return false; };
  /// True if virtual functions may have to be switched off, so that their users must be known. The second
  /// argument is the library's answer; nullptr: none.
  std::function<bool(const mdev::VgpuGpu&, const mdev::ManagedGpu*)> may_shed_functions =
      [](const mdev::VgpuGpu&, const mdev::ManagedGpu*) { return false; };
  /// True if the GPU may be switched, so that its users must be known. Arguments as above.
  std::function<bool(const mdev::VgpuGpu&, const mdev::ManagedGpu*)> may_switch =
      [](const mdev::VgpuGpu&, const mdev::ManagedGpu*) { return false; };
};

/// The library's answer about a GPU. Errc::unsupported if there is no library.
Result<mdev::ManagedGpu> ask_library(const VgpuHost& on, const vfio::PciAddress& gpu);

/// Probes the users of these GPUs' vGPUs, and of the functions in `besides`. No question, no probe.
Result<vfio::UseReport> ask(
    const VgpuHost& on, const vfio::Inventory& inventory, std::span<const mdev::VgpuGpu> gpus,
    const std::function<std::vector<vfio::PciAddress>(const mdev::VgpuGpu&)>& besides);

// The write of each kind of step, and the check that the host shows its effect.

/// The writes of a step with VgpuStep::Target::vgpu, unless vfio/ makes it (VgpuStep::binds_function()). For
/// set_placement, and for the placement of a new vGPU, see mdev::Framework::placement_write(). Errors: those
/// of mdev::Framework::params_writes().
Result<std::vector<AttributeWrite>> writes_of(const HostFs& host, const VgpuStep& step);

/// Moves a vGPU to a placement. No write if the vGPU is already there: the driver's first free placement may
/// be the requested one.
Result<> place(const VgpuHost& on, const VgpuStep& step, std::uint32_t placement);

/// The error of a failed write with the reason that the GPU now shows for it.
Error explained(const VgpuHost& on, const VgpuStep& step, Error error);

Result<> have_library_do(mdev::GpuManagement& library, const VgpuStep& step);

/// Checks that a later scan of the GPU shows the step's effect. `said`: the library's answer now, needed for
/// the library's steps; nullptr: it was not asked. Errc::failed, or the library's own error.
Result<> verify(const VgpuStep& step, const mdev::VgpuGpu& now, const Result<mdev::ManagedGpu>* said);

// Keeps VMs from opening mediated devices between the last use probe and the write that removes them. The
// write asks a VM to give its device up, and takes the device from a running VM.
//
// A group's node has one opener, who also blocks the node of the device itself (drivers/vfio/group.c). The
// removal waits only for open devices, so an open group node does not delay it. A vGPU of vendor-specific
// VFIO needs no fence: its driver refuses the removal while a VM has it. vfio/ has its own fence around a
// whole virtual function.

class RemovalFence {
 public:
  using Opener = std::function<Result<UniqueFd>(const std::filesystem::path& relative)>;

  /// `open` opens a node for reading and writing.
  explicit RemovalFence(Opener open) : open_(std::move(open)) {}
  explicit RemovalFence(const HostFs& host);

  /// Holds the nodes of all vGPUs that these steps remove, until open() or destruction. Errc::refused, with
  /// nothing held: a process has opened one of them since the use probe.
  Result<> close(const mdev::VgpuGpu& gpu, std::span<const VgpuStep> removals);
  /// True if a VM could still take the vGPU that this step removes: the kernel has no such node, or it cannot
  /// be opened here. Its users must then be probed right before its own removal.
  bool leaves_open(const VgpuStep& removal) const;
  void open() { held_.clear(); }

 private:
  Opener open_;
  std::map<std::string, UniqueFd> held_;  // keyed by VgpuId::text
};

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

  /// Applies the plan made from the snapshot, stage by stage; each further stage is planned from a scan after
  /// the stage before. The snapshot must come from right before the first write, so one that `is_old`, since
  /// other GPUs have been changed, is replaced first. `first` is the plan of an earlier snapshot; if it has
  /// no steps, it says why.
  GpuOutcome run(const GpuPlan& first, bool is_old);
  /// Undoes a run that had succeeded. Returns an error for each part that is not restored.
  std::vector<Error> put_back(const GpuOutcome& changed);

 private:
  // gpu_run.cpp
  Result<GpuPlan> next_plan(bool is_first);
  /// Must be the last call: moves the outcome out.
  GpuOutcome end(GpuOutcome::Kind kind, std::optional<Error> error = {});
  GpuOutcome refused(const GpuPlan& plan);
  GpuOutcome fail_and_undo(Error error);
  Result<> undo();
  mdev::VgpuGpu before_with_strangers();
  bool functions_of_strangers() { return gpu()->function.sriov_numvfs > 0 && !before_.functions_are_ours; }
  std::vector<VgpuStep> undo_of_params();
  std::vector<VgpuStep> undo_of_preparation();
  template <typename Steps>
  Result<> undo_stage(const Steps& steps);

  // gpu_stage.cpp: scans
  mdev::VgpuGpu* gpu() {
    return &*std::ranges::find(snapshot_.inventory.gpus, outcome_.gpu, &mdev::VgpuGpu::address);
  }
  // The library's answer; absent: it was not asked, or gave none.
  std::optional<mdev::ManagedGpu> managed() const {
    const mdev::ManagedGpu* said = snapshot_.managed_gpu(outcome_.gpu);
    return said != nullptr ? std::optional(*said) : std::nullopt;
  }
  Result<> can_be_put_back();
  void ask_library_again();
  /// Scans the GPU. Its users stay as they were known.
  Result<> look_again();
  Result<> look_again_with_users();
  void look_at_devices(std::span<const VgpuStep> steps);
  Result<> rescan();
  /// False: the functions to enable are there already.
  Result<bool> still_to_switch(const VgpuStep& step);
  Result<> read_back(std::span<const VgpuStep> steps);

  // gpu_stage.cpp: writes
  mdev::VfSwitch vf_switch() const {
    return {.host = on_.host, .writer = on_.writer, .deadline = on_.deadline, .pause = on_.pause};
  }
  Result<> do_stage(const std::vector<VgpuStep>& steps);
  void keep_params_of(std::span<const VgpuStep> steps);
  Result<> write_stage(std::span<const VgpuStep> stage, bool functions_go);
  Result<> write_each(std::span<const VgpuStep> steps);
  Result<> write_together(std::span<const VgpuStep> steps);
  Result<> remove_all(std::span<const VgpuStep> steps);
  /// `functions_go`: the functions of removed vGPUs are switched off next.
  Result<> rebind_all(std::span<const VgpuStep> steps, bool functions_go);
  Result<> write(const VgpuStep& step);
  Result<> write_now(const VgpuStep& step);
  Result<> write_vgpu(const VgpuStep& step);
  Result<> write_attribute_of(const VgpuStep& step);
  Result<> switch_functions(const VgpuStep& step);
  Result<> keep_users_away(std::span<const VgpuStep> removals, RemovalFence& fence);
  Result<vfio::RebindOutcome> rebind_functions(std::span<const VgpuStep> steps, bool functions_go);
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
  GpuBefore before_;
  bool library_is_stale_ = false;
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
