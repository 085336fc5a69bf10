// SPDX-License-Identifier: Apache-2.0
#include "vgpu-dm/plan/addition.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "mdev/framework.h"
#include "vgpu-dm/apply/gpu_release.h"
#include "vgpu-dm/plan/placement.h"
#include "vgpu-dm/plan/plan_parts.h"

namespace ferry::vgpu {
namespace {

/// Error if no single vGPU can be made on the GPU, whatever its type is.
std::optional<Error> makes_no_vgpu(const mdev::VgpuGpu& gpu) {
  if (!gpu.framework->makes_vgpus() || !gpu.obstacle.empty()) {
    return Error{.code = make_error_code(Errc::unsupported),
                 .message = fmt::format("{}: no vGPU can be made on it: {}", gpu.label(), gpu.obstacle),
                 .hint = "`ferry doctor --for vgpu` shows the requirements that this host lacks"};
  }
  if (gpu.framework->binds_functions()) {
    return Error{
        .code = make_error_code(Errc::unsupported),
        .message = gpu.label() + ": its vGPUs are whole virtual functions, which are not made singly",
        .hint = "a policy of mode vgpu makes them"};
  }
  return std::nullopt;
}

const mdev::VgpuType* type_on(const mdev::VgpuParent& parent, const std::string& type_id) {
  const auto found = std::ranges::find(parent.types, type_id, &mdev::VgpuType::id);
  return found == parent.types.end() ? nullptr : &*found;
}

bool has_room(const mdev::VgpuParent& parent, const std::string& type_id) {
  const mdev::VgpuType* const type = type_on(parent, type_id);
  return type != nullptr && type->available > 0;
}

/// True if a virtual function has its vGPU already.
bool is_taken(const mdev::VgpuGpu& gpu, const vfio::PciAddress& parent) {
  return gpu.on_virtual_functions() &&
         std::ranges::find(gpu.devices, parent, &mdev::VgpuDevice::parent) != gpu.devices.end();
}

Error no_room(const mdev::VgpuGpu& gpu, const std::string& type_id) {
  return {.code = make_error_code(Errc::refused),
          .message = fmt::format("{}: none of type {} fits now; it carries {}", gpu.label(), type_id,
                                 text(counts_of(gpu))),
          .hint = "another size fits only after these vGPUs are removed, unless the GPU has mixed sizes"};
}

GpuPlan unmatched(const mdev::VgpuGpu& gpu) {
  return {.index = gpu.index, .gpu = gpu.address(), .found = counts_of(gpu)};
}

/// Error if the vGPU's ID or placement belongs to another vGPU.
std::optional<Error> taken_by_another(const Addition& addition, const VgpuSnapshot& view,
                                      const mdev::VgpuGpu& gpu) {
  const auto refused = [&](const std::string& problem) {
    return Error{.code = make_error_code(Errc::refused),
                 .message = fmt::format("{}: {}", gpu.label(), problem),
                 .hint = "`ferry status` shows it; something else makes vGPUs on this node"};
  };
  if (const mdev::VgpuDevice* const same = view.inventory.find(addition.id)) {
    return refused(fmt::format("vGPU {} exists already, as {} on {}", same->id.text, same->short_name,
                               same->parent.text()));
  }
  if (is_taken(gpu, addition.parent))
    return refused(fmt::format("virtual function {} has a vGPU by now", addition.parent.text()));
  if (!addition.placement) return std::nullopt;
  const auto other = std::ranges::find(gpu.devices, addition.placement, &mdev::VgpuDevice::placement);
  if (other == gpu.devices.end()) return std::nullopt;
  return refused(fmt::format("placement {} is taken by vGPU {} ({})", *addition.placement, other->id.text,
                             other->short_name));
}

std::optional<Error> cannot_choose_placement(const Addition& addition, const mdev::VgpuGpu& gpu) {
  const std::string_view why = gpu.framework->why_no_placement();
  if (!addition.placement || why.empty()) return std::nullopt;
  return Error{.code = make_error_code(Errc::unsupported),
               .message = fmt::format("{}: no placement can be chosen: {}", gpu.label(), why)};
}

/// The plan for a vGPU that exists. A run that was killed between the creation and the next write may have
/// left it at another placement.
GpuPlan plan_present(GpuPlan plan, const Addition& addition, const VgpuSnapshot& view,
                     const mdev::VgpuGpu& gpu, const mdev::VgpuDevice& device) {
  plan.kept.push_back(device.id);
  if (!addition.placement || device.placement == addition.placement) return plan;
  plan.refusal = cannot_write(gpu, view);
  if (!plan.refusal) {
    plan.refusal = cannot_change(device,
                                 fmt::format("{}: vGPU {} cannot be moved to placement {}", gpu.label(),
                                             device.id.text, *addition.placement),
                                 view.use);
  }
  if (!plan.refusal)
    plan.steps.push_back(move_of(gpu, {.device = &device, .to = *addition.placement}, addition.why));
  return plan;
}

template <typename PlanOne>
VgpuPlan plan_each(const VgpuSnapshot& view, const PlanOne& plan_one) {
  VgpuPlan plan;
  plan.notes = use_notes(view);
  plan.gpus.reserve(view.inventory.gpus.size());
  for (const mdev::VgpuGpu& gpu : view.inventory.gpus) plan.gpus.push_back(plan_one(gpu));
  plan_release(view, plan);
  return plan;
}

}  // namespace

Result<vfio::PciAddress> free_parent(const mdev::VgpuGpu& gpu, const std::string& type_id,
                                     const std::set<vfio::PciAddress>& taken) {
  if (auto none = makes_no_vgpu(gpu)) return fail(std::move(*none));
  for (const mdev::VgpuParent& parent : gpu.parents) {
    if (parent.problem || is_taken(gpu, parent.address) || taken.contains(parent.address)) continue;
    if (has_room(parent, type_id)) return parent.address;
  }
  return fail(no_room(gpu, type_id));
}

GpuPlan plan_addition(const Addition& addition, const VgpuSnapshot& view, const mdev::VgpuGpu& gpu) {
  GpuPlan plan = unmatched(gpu);
  if (gpu.address() != addition.gpu) return plan;
  plan.matched = true;
  for (const mdev::VgpuDevice& device : gpu.devices) {
    if (device.id == addition.id && device.type_id == addition.type_id && device.parent == addition.parent)
      return plan_present(std::move(plan), addition, view, gpu, device);
  }
  plan.refusal = cannot_write(gpu, view);
  if (!plan.refusal) plan.refusal = makes_no_vgpu(gpu);
  if (!plan.refusal) plan.refusal = taken_by_another(addition, view, gpu);
  if (!plan.refusal) plan.refusal = cannot_choose_placement(addition, gpu);
  if (plan.refusal) return plan;
  const auto parent = std::ranges::find(gpu.parents, addition.parent, &mdev::VgpuParent::address);
  if (parent == gpu.parents.end() || !has_room(*parent, addition.type_id)) {
    plan.refusal = no_room(gpu, addition.type_id);
    return plan;
  }
  plan.steps.push_back({.kind = VgpuStep::Kind::create,
                        .framework = gpu.framework,
                        .id = addition.id,
                        .parent = addition.parent,
                        .number = 0,
                        .type_id = addition.type_id,
                        .short_name = type_on(*parent, addition.type_id)->short_name,
                        .why = addition.why});
  plan.steps.back().placement = addition.placement;
  return plan;
}

VgpuPlan plan_addition(const Addition& addition, const VgpuSnapshot& view) {
  return plan_each(view, [&](const mdev::VgpuGpu& gpu) { return plan_addition(addition, view, gpu); });
}

GpuPlan plan_functions_again(const FunctionsAgain& functions, const VgpuSnapshot& view,
                             const mdev::VgpuGpu& gpu) {
  GpuPlan plan = unmatched(gpu);
  if (gpu.address() != functions.gpu) return plan;
  plan.matched = true;
  if (gpu.function.sriov_numvfs > 0) return plan;
  plan.refusal = cannot_write(gpu, view);
  if (!plan.refusal)
    plan.steps.push_back(functions_on(gpu, functions.number, "it had them before it went to a VM whole"));
  return plan;
}

VgpuPlan plan_functions_again(const FunctionsAgain& functions, const VgpuSnapshot& view) {
  return plan_each(view,
                   [&](const mdev::VgpuGpu& gpu) { return plan_functions_again(functions, view, gpu); });
}

}  // namespace ferry::vgpu
