// SPDX-License-Identifier: Apache-2.0
// Takes one GPU through its plan, and rolls it back on a failure. Several GPUs may run in parallel, each in a
// thread of its own.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "vfio/pci/inventory.h"
#include "vgpu-dm/apply/apply.h"
#include "vgpu-dm/plan/plan.h"

namespace ferry::vgpu {

struct GpuPlanner {
  /// Plans the change of one GPU in a view.
  std::function<GpuPlan(const VgpuView&, const mdev::VgpuGpu&)> plan;
  /// True if the plan needs the driver's library's answer about the GPU.
  std::function<bool(const mdev::VgpuGpu&)> asks_library;
  /// True if the plan depends on the names of the vGPUs' types. The library is then asked for names that the
  /// driver does not list.
  std::function<bool(const mdev::VgpuGpu&)> reads_names;
  /// True if virtual functions may have to be switched off, so that their users must be known. The second
  /// argument is the library's answer; nullptr: none.
  std::function<bool(const mdev::VgpuGpu&, const mdev::ManagedGpu*)> may_shed_functions;
  /// True if the GPU may be switched, so that its users must be known. Arguments as above.
  std::function<bool(const mdev::VgpuGpu&, const mdev::ManagedGpu*)> may_switch;
};

/// Age of a view: `fresh` was taken right before, `old` before other GPUs were changed.
enum class Look { fresh, old };

/// Applies the plan made from `view`, stage by stage; each further stage is planned from a scan after the
/// stage before. `view` must come from right before the first write, so an `old` view is replaced first.
/// `first` is the plan of an earlier view; if it has no steps, it says why.
GpuOutcome run_gpu(const VgpuHost& on, const GpuPlanner& planner, const vfio::Inventory& inventory,
                   VgpuView view, const GpuPlan& first, Look look, const StepObserver& observe);

/// Undoes the changes of a run; `view` is from now. Returns an error for each part that is not restored.
std::vector<Error> undo_gpu(const VgpuHost& on, const GpuPlanner& planner, const vfio::Inventory& inventory,
                            VgpuView view, const GpuOutcome& changed, const StepObserver& observe);

/// The library's answer about a GPU. Errc::unsupported if there is no library.
Result<mdev::ManagedGpu> ask_library(const VgpuHost& on, const vfio::PciAddress& gpu);

/// Probes the users of these GPUs' vGPUs, and of the functions in `besides`. No question, no probe.
Result<vfio::UseReport> ask(
    const VgpuHost& on, const vfio::Inventory& inventory, std::span<const mdev::VgpuGpu> gpus,
    const std::function<std::vector<vfio::PciAddress>(const mdev::VgpuGpu&)>& besides);

}  // namespace ferry::vgpu
