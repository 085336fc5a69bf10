// SPDX-License-Identifier: Apache-2.0
// Inside this room: one GPU's way to its plan, and back when something fails. Several GPUs may be on theirs
// side by side, each in a thread of its own.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "vfio/inventory.h"
#include "vgpu-dm/apply.h"
#include "vgpu-dm/plan.h"

namespace ferry {

struct GpuPlanner {
  /// What is to be done on one GPU of a view.
  std::function<GpuPlan(const VgpuView&, const VgpuGpu&)> plan;
  /// Whether the driver's library has to be asked about it before.
  std::function<bool(const VgpuGpu&)> asks_library;
  /// Whether the names of its vGPUs' types matter, so that the library is asked for those which the driver
  /// does not tell.
  std::function<bool(const VgpuGpu&)> reads_names;
  /// Whether its virtual functions may have to go, so that who uses them has to be known. With what the
  /// library says of it; nullptr: it was not asked, or did not say.
  std::function<bool(const VgpuGpu&, const ManagedGpu*)> may_shed_functions;
  /// Whether it may be switched, so that who has it open has to be known. As above.
  std::function<bool(const VgpuGpu&, const ManagedGpu*)> may_switch;
};

/// Whether a look was made right before, or long ago: others have been worked on since.
enum class Look { fresh, old };

/// Carries out what is planned from `view`, a look right before the first write, then stage by stage, each
/// from a scan that has seen the one before. Where that look is old another one is made first. `first` is the
/// plan of an earlier look: where it has no steps, it says why.
GpuOutcome run_gpu(const VgpuHost& on, const GpuPlanner& planner, const Inventory& inventory, VgpuView view,
                   const GpuPlan& first, Look look, const StepObserver& observe);

/// Takes back what a run has changed; `view` is a look from now. Gives what could not be put back.
std::vector<Error> undo_gpu(const VgpuHost& on, const GpuPlanner& planner, const Inventory& inventory,
                            VgpuView view, const GpuOutcome& changed, const StepObserver& observe);

/// What the library says of a GPU. Errc::unsupported where there is none to ask.
Result<ManagedGpu> ask_library(const VgpuHost& on, const PciAddress& gpu);

/// Who uses these GPUs' vGPUs, and `besides` these functions of each; nobody is asked about nothing.
Result<UseReport> ask(const VgpuHost& on, const Inventory& inventory, std::span<const VgpuGpu> gpus,
                      const std::function<std::vector<PciAddress>(const VgpuGpu&)>& besides);

}  // namespace ferry
