// SPDX-License-Identifier: Apache-2.0
#include "vgpu-dm/apply/gpu_release.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <set>
#include <span>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "vgpu-dm/apply/gpu_run.h"
#include "vgpu-dm/plan/plan_parts.h"

namespace ferry::vgpu {
namespace {

/// A GPU that its plan switches, and the first step that does.
struct Candidate {
  GpuPlan* plan;
  const VgpuStep* step;
  vfio::QuiescePlan to_quiesce = {};
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

std::vector<vfio::QuiesceRequest> quiesce(const vfio::RebindContext& context,
                                          const vfio::Inventory& inventory, vfio::StoppedServices& services,
                                          VgpuPlan& plan) {
  std::vector<vfio::QuiesceRequest> requests;
  requests.reserve(plan.gpus.size());
  for (const GpuPlan& gpu : plan.gpus) {
    vfio::QuiesceRequest& request = requests.emplace_back();
    request.devices = {gpu.gpu};
    request.users = gpu.releases;
  }
  quiesce(context, inventory, services, requests);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    if (auto& refusal = requests[i].refusal)
      plan.gpus[i].refusal = std::move(*refusal).during(plan.gpus[i].label());
  }
  return requests;
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

vfio::RebindContext release_context(const VgpuHost& on) {
  return {.host = &on.host,
          .writer = &on.writer,
          .probe = &on.uses,
          .rules = on.rules,
          .on_step = on.on_release,
          .service_manager = on.service_manager,
          .persistence = on.persistence};
}

Result<vfio::UseReport> ask(
    const VgpuHost& on, const vfio::Inventory& inventory, std::span<const mdev::VgpuGpu> gpus,
    const std::function<std::vector<vfio::PciAddress>(const mdev::VgpuGpu&)>& besides) {
  std::vector<vfio::UseQuestion> questions;
  for (const mdev::VgpuGpu& gpu : gpus) {
    for (const mdev::VgpuDevice& device : gpu.devices) questions.push_back(mdev::use_question(device));
    for (vfio::UseQuestion& question : vfio::use_questions(on.host, inventory, besides(gpu))) {
      const auto same = [&](const vfio::UseQuestion& known) { return known.device == question.device; };
      const auto known = std::ranges::find_if(questions, same);  // asked about as a vGPU
      if (known == questions.end()) {
        questions.push_back(std::move(question));
      } else {
        std::ranges::move(question.nodes, std::back_inserter(known->nodes));
      }
    }
  }
  if (questions.empty()) return vfio::UseReport{};
  return on.uses.look(questions);
}

}  // namespace ferry::vgpu
