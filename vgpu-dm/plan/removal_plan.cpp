// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "vgpu-dm/plan/plan.h"
#include "vgpu-dm/plan/plan_parts.h"
#include "vgpu-dm/plan/stable_uuid.h"

namespace ferry::vgpu {
namespace {

GpuPlan plan_gpu_removal(const Removal& removal, const mdev::VgpuGpu& gpu, const VgpuView& view) {
  GpuPlan plan{.index = gpu.index, .gpu = gpu.address(), .matched = true};
  plan.found = counts_of(gpu);
  std::vector<const mdev::VgpuDevice*> leaving;
  for (const mdev::VgpuDevice& device : gpu.devices) {
    if (removal.foreign || is_ours(view.node, device)) {
      leaving.push_back(&device);
    } else {
      plan.kept.push_back(device.id);
      plan.notes.push_back(fmt::format("{}: vGPU {} ({}) {}: left; --foreign takes it too", gpu.label(),
                                       device.id.text, device.short_name,
                                       gpu.framework == mdev::VgpuFramework::vendor_vfio
                                           ? "has no UUID that would tell whether Ferry made it"
                                           : "was not made by Ferry"));
    }
  }
  plan.refusal = cannot_write(gpu, view);  // a part that could not be read may hide vGPUs
  if (leaving.empty()) return plan;
  if (!plan.refusal) plan.refusal = in_use(gpu, leaving, view.use, "stop what uses it");
  if (plan.refusal) return plan;
  for (const mdev::VgpuDevice* device : leaving)
    plan.steps.push_back(removal_of(gpu, *device, "asked to go"));
  return plan;
}

}  // namespace

VgpuPlan plan_removal(const Removal& removal, const VgpuView& view) {
  VgpuPlan plan;
  plan.notes = use_notes(view);
  plan.gpus.reserve(view.inventory.gpus.size());
  for (const mdev::VgpuGpu& gpu : view.inventory.gpus) plan.gpus.push_back(plan_removal(removal, view, gpu));
  return plan;
}

GpuPlan plan_removal(const Removal& removal, const VgpuView& view, const mdev::VgpuGpu& gpu) {
  if (removal.gpus.empty() || removal.gpus.contains(gpu.address())) {
    return plan_gpu_removal(removal, gpu, view);
  }
  return {.index = gpu.index, .gpu = gpu.address(), .found = counts_of(gpu)};
}

}  // namespace ferry::vgpu
