// SPDX-License-Identifier: Apache-2.0
// Takes one GPU through its plan, and rolls it back on a failure. Several GPUs may run in parallel, each in a
// thread of its own.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "common/result.h"
#include "common/unique_fd.h"
#include "hostfs/host_fs.h"
#include "hostfs/host_writer.h"
#include "mdev/gpu_management.h"
#include "vfio/pci/inventory.h"
#include "vgpu-dm/apply/apply.h"
#include "vgpu-dm/apply/vgpu_step.h"
#include "vgpu-dm/plan/plan.h"

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

/// Age of a snapshot: `fresh` was taken right before, `old` before other GPUs were changed.
enum class SnapshotAge { fresh, old };

/// Applies the plan made from `snapshot`, stage by stage; each further stage is planned from a scan after the
/// stage before. `snapshot` must come from right before the first write, so an `old` one is replaced first.
/// `first` is the plan of an earlier snapshot; if it has no steps, it says why.
GpuOutcome run_gpu(const VgpuHost& on, const GpuPlanner& planner, const vfio::Inventory& inventory,
                   VgpuSnapshot snapshot, const GpuPlan& first, SnapshotAge age, const StepObserver& observe);

/// Undoes the changes of a run; `snapshot` is from now. Returns an error for each part that is not restored.
std::vector<Error> undo_gpu(const VgpuHost& on, const GpuPlanner& planner, const vfio::Inventory& inventory,
                            VgpuSnapshot snapshot, const GpuOutcome& changed, const StepObserver& observe);

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

/// Applies a step with VgpuStep::Target::library.
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

}  // namespace ferry::vgpu
