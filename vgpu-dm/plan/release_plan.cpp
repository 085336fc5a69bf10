// SPDX-License-Identifier: Apache-2.0
#include "vgpu-dm/plan/release_plan.h"

#include <algorithm>
#include <functional>
#include <set>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "vfio/quiesce/quiesce_plan.h"
#include "vgpu-dm/plan/plan_parts.h"

namespace ferry::vgpu {
namespace {

/// A GPU that its plan switches, and the first step that does.
struct Candidate {
  GpuPlan* plan;
  const VgpuStep* step;
  vfio::QuiescePlan to_quiesce = {};
};

std::vector<Candidate> candidates_of(VgpuPlan& plan) {
  std::vector<Candidate> out;
  for (GpuPlan& gpu : plan.gpus) {
    const VgpuStep* first = nullptr;
    for (const auto* steps : {&gpu.steps, &gpu.later}) {
      const auto found = std::ranges::find_if(*steps, &VgpuStep::needs_gpu_free);
      if (first == nullptr && found != steps->end()) first = &*found;
    }
    if (first != nullptr && !gpu.refusal) out.push_back({.plan = &gpu, .step = first});
  }
  return out;
}

// A screen, the fabric or the kubelet's record of an allocation keeps no device open. The manager of vGPUs is
// the driver's other half: NVIDIA's own tools switch functions while it runs, and its work for VMs shows as
// users of their vGPUs.
bool has_it_open(const vfio::DeviceUser& user) {
  const bool by_a_node =
      user.what.starts_with('/');  // otherwise the probe only says that its files are too many to search
  if (user.kind == vfio::DeviceUser::Kind::process && user.name == "nvidia-vgpu-mgr" && by_a_node)
    return false;
  return user.kind == vfio::DeviceUser::Kind::process ||
         user.kind == vfio::DeviceUser::Kind::virtual_machine || user.kind == vfio::DeviceUser::Kind::console;
}

Error in_the_way(const Candidate& candidate, const vfio::DeviceUser& user) {
  return {.code = Errc::refused,
          .message = fmt::format("{}: is in use: {}, and has to be free to {}", candidate.plan->label(),
                                 user.text(), candidate.step->text()),
          .hint = vfio::remedy_by_release(user)};
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
      for (Error& why :
           vfio::serving_others(candidate.to_quiesce, freed, "which does not change with this")) {
        settled = false;
        refuse(*candidate.plan, std::move(why).during(candidate.plan->label()));
      }
    }
  }
}

}  // namespace

void plan_release(const VgpuSnapshot& snapshot, VgpuPlan& plan) {
  auto candidates = candidates_of(plan);
  for (Candidate& candidate : candidates) {
    const vfio::PciAddress& gpu = candidate.plan->gpu;
    for (const vfio::DeviceUser& user : snapshot.use.of(gpu.text())) {
      if (!has_it_open(user)) continue;
      if (const auto may = vfio::may_release(user, snapshot.release, gpu)) {
        candidate.to_quiesce.add(*may, user, gpu);
      } else {
        refuse(*candidate.plan, in_the_way(candidate, user));
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
    const auto& driver = snapshot.inventory.find(held)->function.driver;
    return std::ranges::any_of(snapshot.inventory.gpus, [&](const mdev::VgpuGpu& other) {
      return other.function.driver == driver && !freed.contains(other.address());
    });
  };
  for (const Candidate& candidate : candidates) {
    if (candidate.plan->refusal) continue;
    candidate.plan->releases = vfio::users_to_quiesce(
        candidate.to_quiesce, snapshot.persistence_by_gpu, [](const vfio::PciAddress&) { return true; },
        serves_others);
  }
}

void refuse_held(const VgpuSnapshot& snapshot, VgpuPlan& plan) {
  for (const Candidate& candidate : candidates_of(plan)) {
    GpuPlan& gpu = *candidate.plan;
    for (const vfio::DeviceUser& user : snapshot.use.of(gpu.gpu.text())) {
      if (!has_it_open(user)) continue;
      const auto asked = vfio::may_release(user, snapshot.release, gpu.gpu);
      refuse(gpu, asked && gpu.releases.contains(*asked) ? vfio::still_in_use(*asked, gpu.label())
                                                         : in_the_way(candidate, user));
    }
  }
}

}  // namespace ferry::vgpu
