// SPDX-License-Identifier: Apache-2.0
#include "vgpu-dm/apply/tuning.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include <fmt/format.h>

#include "vgpu-dm/plan/plan_parts.h"

namespace ferry::vgpu {

std::optional<Error> cannot_tune(const GpuMatch& match, const mdev::VgpuGpu& gpu,
                                 const vfio::UseReport& use) {
  for (const Want& want : match.wants) {
    for (const mdev::VgpuDevice* device : want.untuned()) {
      const std::string what =
          fmt::format("{}: {}: the parameters of vGPU {} ({}) cannot be set", want.entry->place, gpu.label(),
                      device->id.text, device->short_name);
      if (!device->params) {
        return Error{.code = Errc::unsupported,
                     .message = what + ": its driver has none",
                     .hint = "leave vgpu-params out"};
      }
      if (auto held = cannot_change(*device, what, use)) return held;
    }
  }
  return std::nullopt;
}

VgpuStep params_of(const mdev::VgpuGpu& gpu, const mdev::VgpuDevice& device, std::string text,
                   std::string why) {
  VgpuStep step = removal_of(gpu, device, std::move(why));
  step.kind = VgpuStep::Kind::set_params;
  step.params = std::move(text);
  return step;
}

void add_params(const GpuMatch& match, const mdev::VgpuGpu& gpu, GpuPlan& plan) {
  for (const Want& want : match.wants) {
    const auto& params = want.entry->params;
    if (!params) continue;
    for (const mdev::VgpuDevice* device : want.untuned()) {
      plan.steps.push_back(params_of(gpu, *device, params->attribute(),
                                     fmt::format("{} asks for '{}', it has '{}'", want.entry->place,
                                                 params->text(), device->params.value_or(""))));
    }
    if (params->entries.empty() || want.type == nullptr) continue;  // a new vGPU has none
    std::vector<VgpuStep> of_new;
    for (const VgpuStep& step : plan.steps) {
      if (step.kind != VgpuStep::Kind::create || step.type_id != want.type->id) continue;
      of_new.push_back(step);
      of_new.back().kind = VgpuStep::Kind::set_params;
      of_new.back().params = params->attribute();
      of_new.back().placement.reset();
      of_new.back().why = fmt::format("{} asks for '{}'", want.entry->place, params->text());
    }
    std::ranges::move(of_new, std::back_inserter(plan.steps));
  }
}

}  // namespace ferry::vgpu
