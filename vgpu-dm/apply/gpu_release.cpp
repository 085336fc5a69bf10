// SPDX-License-Identifier: Apache-2.0
#include "vgpu-dm/apply/gpu_release.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "vgpu-dm/plan/plan_parts.h"

namespace ferry::vgpu {
namespace {

/// A GPU that its plan switches, and the first step that does.
struct Candidate {
  GpuPlan* plan;
  const VgpuStep* step;
  vfio::Released released = {};
};

const VgpuStep* first_switch(const GpuPlan& plan) {
  for (const auto* steps : {&plan.steps, &plan.later}) {
    const auto found = std::ranges::find_if(*steps, &VgpuStep::needs_gpu_free);
    if (found != steps->end()) return &*found;
  }
  return nullptr;
}

std::vector<Candidate> candidates_of(VgpuPlan& plan) {
  std::vector<Candidate> out;
  for (GpuPlan& gpu : plan.gpus) {
    const VgpuStep* step = first_switch(gpu);
    if (step != nullptr && !gpu.refusal) out.push_back({.plan = &gpu, .step = step});
  }
  return out;
}

// A screen, the fabric or the kubelet's record of an allocation keeps no device open. The manager of vGPUs is
// the driver's other half: NVIDIA's own tools switch functions while it runs, and its work for VMs shows as
// users of their vGPUs.
bool has_it_open(const vfio::Holder& holder) {
  const bool by_a_node =
      holder.what.starts_with('/');  // otherwise the probe only says that its files are too many to search
  if (holder.kind == vfio::Holder::Kind::process && holder.name == "nvidia-vgpu-mgr" && by_a_node)
    return false;
  return holder.kind == vfio::Holder::Kind::process || holder.kind == vfio::Holder::Kind::virtual_machine ||
         holder.kind == vfio::Holder::Kind::console;
}

Error in_the_way(const Candidate& candidate, const vfio::Holder& holder) {
  return {.code = Errc::refused,
          .message = fmt::format("{}: is in use: {}, and has to be free to {}", candidate.plan->label(),
                                 holder.text(), candidate.step->text()),
          .hint = vfio::remedy_by_release(holder)};
}

void refuse_for_modules(std::vector<Candidate>& candidates) {
  for (bool settled = false; !settled;) {
    settled = true;
    std::set<std::string> freed;
    for (const Candidate& candidate : candidates) {
      if (!candidate.plan->refusal) freed.insert(candidate.plan->gpu.text());
    }
    for (const Candidate& candidate : candidates) {
      if (candidate.plan->refusal) continue;
      for (Error& why : vfio::serving_others(candidate.released, freed, "which does not change with this")) {
        settled = false;
        refuse(*candidate.plan, std::move(why).during(candidate.plan->label()));
      }
    }
  }
}

}  // namespace

void plan_release(const VgpuView& view, VgpuPlan& plan) {
  auto candidates = candidates_of(plan);
  for (Candidate& candidate : candidates) {
    const vfio::PciAddress& gpu = candidate.plan->gpu;
    for (const vfio::Holder& holder : view.use.of(gpu.text())) {
      if (!has_it_open(holder)) continue;
      if (const auto may = vfio::may_release(holder, view.release)) {
        candidate.released.add(*may, holder, gpu);
      } else {
        refuse(*candidate.plan, in_the_way(candidate, holder));
      }
    }
  }
  refuse_for_modules(candidates);
  std::set<vfio::PciAddress> freed;
  for (const Candidate& candidate : candidates) {
    GpuPlan& gpu = *candidate.plan;
    if (gpu.refusal) {
      gpu.steps.clear();
      gpu.later.clear();
      gpu.then.clear();
    } else {
      freed.insert(gpu.gpu);
    }
  }
  const auto serves_others = [&](const vfio::PciAddress& held) {
    const auto& driver = view.inventory.find(held)->function.driver;
    return std::ranges::any_of(view.inventory.gpus, [&](const mdev::VgpuGpu& other) {
      return other.function.driver == driver && !freed.contains(other.address());
    });
  };
  for (const Candidate& candidate : candidates) {
    if (candidate.plan->refusal) continue;
    candidate.plan->releases = vfio::asked_to_let_go(
        candidate.released, view.persistence_by_gpu, [](const vfio::PciAddress&) { return true; },
        serves_others);
  }
}

std::vector<vfio::Asker> let_go(const vfio::ReleaseContext& context, const vfio::Inventory& inventory,
                                vfio::StoppedServices& services, VgpuPlan& plan) {
  std::vector<vfio::Asker> askers;
  askers.reserve(plan.gpus.size());
  for (const GpuPlan& gpu : plan.gpus) {
    vfio::Asker& asker = askers.emplace_back();
    asker.devices = {gpu.gpu};
    asker.holders = gpu.releases;
  }
  let_go(context, inventory, services, askers);
  for (std::size_t i = 0; i < askers.size(); ++i) {
    if (auto& refusal = askers[i].refusal)
      plan.gpus[i].refusal = std::move(*refusal).during(plan.gpus[i].label());
  }
  return askers;
}

void refuse_held(const VgpuView& view, VgpuPlan& plan) {
  for (const Candidate& candidate : candidates_of(plan)) {
    GpuPlan& gpu = *candidate.plan;
    for (const vfio::Holder& holder : view.use.of(gpu.gpu.text())) {
      if (!has_it_open(holder)) continue;
      const auto asked = vfio::may_release(holder, view.release);
      refuse(gpu, asked && gpu.releases.contains(*asked) ? vfio::held_on(*asked, gpu.label())
                                                         : in_the_way(candidate, holder));
    }
  }
}

vfio::ReleaseContext release_context(const VgpuHost& on) {
  return {.host = &on.host,
          .writer = &on.writer,
          .probe = &on.uses,
          .rules = on.rules,
          .on_step = on.on_release,
          .releaser = on.releaser,
          .persistence = on.persistence};
}

}  // namespace ferry::vgpu
