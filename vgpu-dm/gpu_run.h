// SPDX-License-Identifier: Apache-2.0
// Inside this room: one GPU's way to its plan, and back when something fails. Several GPUs may be on theirs
// side by side, each in a thread of its own.
#pragma once

#include <functional>

#include "vfio/inventory.h"
#include "vgpu-dm/apply.h"
#include "vgpu-dm/plan.h"

namespace ferry {

struct GpuPlanner {
  /// What is to be done on one GPU of a view.
  std::function<GpuPlan(const VgpuView&, const VgpuGpu&)> plan;
  /// Whether the driver's library has to be asked about it before.
  std::function<bool(const VgpuGpu&)> asks_library;
};

/// Carries out what is planned from `view`, a look right before the first write, then stage by stage, each
/// from a scan that has seen the one before. `first` is the plan of an earlier look: where it has no steps,
/// it says why.
GpuOutcome run_gpu(const VgpuHost& on, const GpuPlanner& planner, const Inventory& inventory, VgpuView view,
                   const GpuPlan& first, const StepObserver& observe);

/// What the library says of a GPU. Errc::unsupported where there is none to ask.
Result<ManagedGpu> ask_library(const VgpuHost& on, const PciAddress& gpu);

/// Who uses these vGPUs; nobody is asked about none.
Result<UseReport> ask(UseProbe& uses, const std::vector<VgpuDevice>& devices);

}  // namespace ferry
