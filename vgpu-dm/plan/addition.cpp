// SPDX-License-Identifier: Apache-2.0
#include "vgpu-dm/plan/addition.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "common/text/text.h"
#include "mdev/framework.h"
#include "vgpu-dm/plan/placement.h"
#include "vgpu-dm/plan/plan_parts.h"

namespace ferry::vgpu {
namespace {

/// Error if no single vGPU can be made on the GPU, whatever its type is.
std::optional<Error> makes_no_vgpu(const mdev::VgpuGpu& gpu) {
  if (!gpu.framework->makes_vgpus() || !gpu.obstacle.empty()) {
    return Error{.code = Errc::unsupported,
                 .message = fmt::format("{}: no vGPU can be made on it: {}", gpu.label(), gpu.obstacle),
                 .hint = "`ferry doctor --for vgpu` shows the requirements that this host lacks"};
  }
  return std::nullopt;
}

bool is_taken(const mdev::VgpuGpu& gpu, const vfio::PciAddress& parent) {
  return gpu.on_virtual_functions() &&
         std::ranges::find(gpu.devices, parent, &mdev::VgpuDevice::parent) != gpu.devices.end();
}

Error no_capacity_on(const mdev::VgpuGpu& gpu, const std::string& type_id) {
  return {.code = Errc::refused,
          .message = fmt::format("{}: none of type {} fits now; it carries {}", gpu.label(), type_id,
                                 text(counts_of(gpu))),
          .hint = "another size fits only after these vGPUs are removed, unless the GPU has mixed sizes"};
}

/// Error if the vGPU's ID or placement belongs to another vGPU.
std::optional<Error> taken_by_another(const Addition& addition, const VgpuSnapshot& snapshot,
                                      const mdev::VgpuGpu& gpu) {
  const auto refused = [&](const std::string& problem) {
    return Error{.code = Errc::refused,
                 .message = fmt::format("{}: {}", gpu.label(), problem),
                 .hint = "`ferry status` shows it; something else makes vGPUs on this node"};
  };
  if (const mdev::VgpuDevice* const same = snapshot.inventory.find(addition.id)) {
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

/// nullptr: NVML has no such type, or no placements for it.
const mdev::ManagedType* placed_type(const mdev::ManagedGpu& gpu, std::string_view id) {
  const auto number = whole_number(id.substr(id.find_last_of('-') + 1));
  const auto found = std::ranges::find_if(gpu.types, [&](const mdev::ManagedType& type) {
    return type.id == number && !type.placements.empty();
  });
  return found == gpu.types.end() ? nullptr : &*found;
}

/// Error if the type has no such placement, or if a vGPU takes a part of it.
std::optional<Error> cannot_be_placed(const Addition& addition, const mdev::VgpuGpu& gpu,
                                      const mdev::ManagedGpu& now) {
  const mdev::ManagedType* const type = placed_type(now, addition.type_id);
  if (!addition.placement || type == nullptr) return std::nullopt;
  const std::uint64_t begin = *addition.placement;
  if (std::ranges::find(type->placements, *addition.placement) == type->placements.end()) {
    return Error{.code = Errc::refused,
                 .message = fmt::format("{}: {} has no placement {}", gpu.label(), type->name, begin)};
  }
  for (const mdev::VgpuDevice& device : gpu.devices) {
    const mdev::ManagedType* const other = placed_type(now, device.type_id);
    if (!device.placement || other == nullptr) continue;
    const std::uint64_t taken = *device.placement;
    if (begin >= taken + other->size || taken >= begin + type->size) continue;
    return Error{
        .code = Errc::refused,
        .message = fmt::format("{}: a part of placement {} of {} is taken by vGPU {} ({}) at {}", gpu.label(),
                               begin, type->name, device.id.text, device.short_name, taken),
        .hint = "`ferry status` shows it; something else makes vGPUs on this node"};
  }
  return std::nullopt;
}

/// Error if the GPU cannot have mixed sizes now. Without an error they are on, or can be switched on.
std::optional<Error> lacks_mixed_sizes(const Addition& addition, const VgpuSnapshot& snapshot,
                                       const mdev::VgpuGpu& gpu) {
  if (addition.sizes != Sizes::mixed) return std::nullopt;
  const mdev::ManagedGpu* const now = snapshot.managed_gpu(gpu.address());
  if (now == nullptr) {
    return no_answer(gpu, snapshot,
                     gpu.label() + ": its vGPUs need mixed sizes, which NVML alone can switch on");
  }
  if (now->mixed_sizes == mdev::GpuSwitch::unsupported) {
    return Error{.code = Errc::unsupported,
                 .message = gpu.label() + ": cannot have vGPUs of different sizes"};
  }
  if (now->mixed_sizes == mdev::GpuSwitch::off && !gpu.devices.empty()) {
    return Error{
        .code = Errc::refused,
        .message = fmt::format("{}: mixed sizes are off, and can be switched on only while it has no "
                               "vGPUs; it has {}",
                               gpu.label(), text(counts_of(gpu))),
        .hint = "they are switched on once these vGPUs are gone"};
  }
  return cannot_be_placed(addition, gpu, *now);
}

/// Absent: the mode stays.
std::optional<bool> mixed_sizes_to_set(const Addition& addition, const mdev::VgpuGpu& gpu,
                                       const mdev::ManagedGpu* now) {
  if (now == nullptr || !gpu.devices.empty()) return std::nullopt;
  if (addition.sizes == Sizes::mixed && now->mixed_sizes == mdev::GpuSwitch::off) return true;
  if (addition.sizes == Sizes::equal && now->mixed_sizes == mdev::GpuSwitch::on) return false;
  return std::nullopt;
}

/// The plan for a vGPU that exists. A run that was killed between the creation and the next write may have
/// left it at another placement.
GpuPlan plan_present(GpuPlan plan, const Addition& addition, const VgpuSnapshot& snapshot,
                     const mdev::VgpuGpu& gpu, const mdev::VgpuDevice& device) {
  plan.kept.push_back(device.id);
  if (!addition.placement || device.placement == addition.placement) return plan;
  plan.refusal = cannot_write(gpu, snapshot);
  if (!plan.refusal) {
    plan.refusal = cannot_change(device,
                                 fmt::format("{}: vGPU {} cannot be moved to placement {}", gpu.label(),
                                             device.id.text, *addition.placement),
                                 snapshot.use);
  }
  if (!plan.refusal)
    plan.steps.push_back(move_of(gpu, {.device = &device, .to = *addition.placement}, addition.why));
  return plan;
}

}  // namespace

Result<vfio::PciAddress> free_parent(const mdev::VgpuGpu& gpu, const std::string& type_id,
                                     const std::set<vfio::PciAddress>& taken) {
  if (auto none = makes_no_vgpu(gpu)) return fail(std::move(*none));
  for (const mdev::VgpuParent& parent : gpu.parents) {
    if (parent.problem || is_taken(gpu, parent.address) || taken.contains(parent.address)) continue;
    if (parent.available(type_id) > 0) return parent.address;
  }
  return fail(no_capacity_on(gpu, type_id));
}

bool needs_library(const Addition& addition, const mdev::VgpuGpu& gpu) {
  if (addition.sizes == Sizes::as_now || gpu.address() != addition.gpu) return false;
  if (!gpu.framework->by_nvidias_driver() || !gpu.on_virtual_functions()) return false;
  return addition.sizes == Sizes::mixed || gpu.devices.empty();
}

bool may_switch_sizes(const Addition& addition, const mdev::VgpuGpu& gpu, const mdev::ManagedGpu* said) {
  return gpu.address() == addition.gpu && mixed_sizes_to_set(addition, gpu, said).has_value();
}

GpuPlan plan_addition(const Addition& addition, const VgpuSnapshot& snapshot, const mdev::VgpuGpu& gpu) {
  GpuPlan plan = unmatched(gpu);
  if (gpu.address() != addition.gpu) return plan;
  plan.matched = true;
  for (const mdev::VgpuDevice& device : gpu.devices) {
    if (device.id == addition.id && device.type_id == addition.type_id && device.parent == addition.parent)
      return plan_present(std::move(plan), addition, snapshot, gpu, device);
  }
  plan.refusal = cannot_write(gpu, snapshot);
  if (!plan.refusal) plan.refusal = makes_no_vgpu(gpu);
  if (!plan.refusal) plan.refusal = taken_by_another(addition, snapshot, gpu);
  const std::string_view why = gpu.framework->why_no_placement();
  if (!plan.refusal && addition.placement && !why.empty())
    plan.refusal = Error{.code = Errc::unsupported,
                         .message = fmt::format("{}: no placement can be chosen: {}", gpu.label(), why)};
  if (!plan.refusal) plan.refusal = lacks_mixed_sizes(addition, snapshot, gpu);
  if (plan.refusal) return plan;
  const auto parent = std::ranges::find(gpu.parents, addition.parent, &mdev::VgpuParent::address);
  if (parent == gpu.parents.end() || parent->available(addition.type_id) == 0) {
    plan.refusal = no_capacity_on(gpu, addition.type_id);
    return plan;
  }
  VgpuStep creation{.kind = VgpuStep::Kind::create,
                    .framework = gpu.framework,
                    .id = addition.id,
                    .parent = addition.parent,
                    .type_id = addition.type_id,
                    .short_name = parent->find(addition.type_id)->short_name,
                    .why = addition.why,
                    .placement = addition.placement};
  const auto mixed = mixed_sizes_to_set(addition, gpu, snapshot.managed_gpu(gpu.address()));
  if (!mixed) {
    plan.steps.push_back(std::move(creation));
    return plan;
  }
  plan.steps.push_back(step_of(VgpuStep::Kind::set_mixed_sizes, gpu, *mixed ? 1 : 0, addition.why));
  plan.later.push_back(std::move(creation));
  return plan;
}

GpuPlan plan_functions_again(const FunctionsAgain& functions, const VgpuSnapshot& snapshot,
                             const mdev::VgpuGpu& gpu) {
  GpuPlan plan = unmatched(gpu);
  if (gpu.address() != functions.gpu) return plan;
  plan.matched = true;
  if (gpu.function.sriov_numvfs > 0) return plan;
  plan.refusal = cannot_write(gpu, snapshot);
  if (const mdev::ManagedGpu* said = snapshot.managed_gpu(gpu.address());
      !plan.refusal && said != nullptr && !said->instances.empty())
    plan.refusal = Error{.code = Errc::refused,
                         .message = "it has GPU instances (MIG), which the driver deletes with this change",
                         .hint = "remove them with `nvidia-smi mig`, or set `allow: [whole]` in the policy"};
  if (!plan.refusal) plan.steps.push_back(functions_on(gpu, functions.number, functions.why));
  return plan;
}

}  // namespace ferry::vgpu
