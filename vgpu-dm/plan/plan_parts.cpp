// SPDX-License-Identifier: Apache-2.0
#include "vgpu-dm/plan/plan_parts.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "vfio/pci/inventory.h"
#include "vgpu-dm/plan/release_plan.h"

namespace ferry::vgpu {
std::string remedy_of_blindness(const vfio::UseReport& use) {
  const std::string out(use.remedy_of_blindness());
  return use.blind_hint.empty() ? out + ", and while the kubelet answers" : out;
}

VgpuStep removal_of(const mdev::VgpuGpu& gpu, const mdev::VgpuDevice& device, std::string why) {
  return {.kind = VgpuStep::Kind::remove,
          .framework = gpu.framework,
          .id = device.id,
          .parent = device.parent,
          .type_id = device.type_id,
          .short_name = device.short_name,
          .why = std::move(why)};
}

std::vector<TypeCount> counts_of(const mdev::VgpuGpu& gpu) {
  return match_gpu(ProfileItem{}, gpu, {}, {}).found();
}

std::string users_of(const mdev::VgpuDevice& device, const vfio::UseReport& use) {
  std::vector<std::string> out;
  for (const vfio::DeviceUser& user : use.of(device.id.text)) out.push_back(user.text());
  return fmt::format("{}", fmt::join(out, ", "));
}

std::optional<Error> in_use(const mdev::VgpuGpu& gpu, const std::vector<const mdev::VgpuDevice*>& devices,
                            const vfio::UseReport& use, std::string hint) {
  if (!use.blind.empty() && !devices.empty()) {
    return Error{.code = Errc::refused,
                 .message = fmt::format("{}: Ferry cannot find out whether its vGPUs are in use: {}",
                                        gpu.label(), use.blind),
                 .hint = remedy_of_blindness(use)};
  }
  std::vector<std::string> reasons;
  for (const mdev::VgpuDevice* device : devices) {
    if (use.of(device->id.text).empty()) continue;
    reasons.push_back(fmt::format("vGPU {} ({}) would have to be removed: {}", device->id.text,
                                  device->short_name, users_of(*device, use)));
  }
  if (reasons.empty()) return std::nullopt;
  return Error{.code = Errc::refused,
               .message = fmt::format("{}: {}", gpu.label(), fmt::join(reasons, "; ")),
               .hint = std::move(hint)};
}

bool may_carry(const mdev::VgpuGpu& gpu) {
  return !gpu.devices.empty() || gpu.problem() != nullptr;
}

// A GPU on a vfio driver has left the host, and its functions belong to the program that bound it.
bool sheds_functions(const ProfileItem& item, const mdev::VgpuGpu& gpu) {
  return item.whole && gpu.function.sriov_numvfs > 0 && !vfio::on_vfio_driver(gpu.function);
}

std::vector<Error> functions_in_use(const mdev::VgpuGpu& gpu, const vfio::UseReport& use,
                                    const std::vector<const mdev::VgpuDevice*>& leaving) {
  std::vector<Error> out;
  const auto refused = [&](const std::string& what, std::string hint) {
    out.push_back({.code = Errc::refused,
                   .message = fmt::format("{}: its virtual functions would have to be removed, and {}",
                                          gpu.label(), what),
                   .hint = std::move(hint)});
  };
  if (!gpu.functions_away.empty()) {
    const std::string away = gpu.functions_away.front().text();
    refused(away + " is bound to a VFIO driver for passthrough",
            fmt::format("`ferry vfio unbind --device {}` returns it to the host", away));
  }
  if (!use.blind.empty())
    refused("Ferry cannot find out whether they are in use: " + use.blind, remedy_of_blindness(use));
  std::vector<std::string> reasons;
  for (const vfio::PciAddress& function : gpu.functions) {
    const auto is_on_it = [&](const mdev::VgpuDevice* device) { return device->id.text == function.text(); };
    if (std::ranges::any_of(leaving, is_on_it)) continue;
    for (const vfio::DeviceUser& user : use.of(function.text()))
      reasons.push_back(fmt::format("{} is in use: {}", function.text(), user.text()));
  }
  if (!reasons.empty()) refused(fmt::format("{}", fmt::join(reasons, "; ")), "stop what uses it");
  return out;
}

VgpuStep step_of(VgpuStep::Kind kind, const mdev::VgpuGpu& gpu, std::uint32_t number, std::string why) {
  return {.kind = kind,
          .framework = gpu.framework,
          .parent = gpu.address(),
          .number = number,
          .why = std::move(why)};
}

VgpuStep functions_on(const mdev::VgpuGpu& gpu, std::uint32_t number, std::string why) {
  return step_of(VgpuStep::Kind::enable_vfs, gpu, number, std::move(why));
}

VgpuStep functions_off(const mdev::VgpuGpu& gpu, std::string why) {
  return step_of(VgpuStep::Kind::disable_vfs, gpu, gpu.function.sriov_numvfs, std::move(why));
}

VgpuStep autoprobe_step(const mdev::VgpuGpu& gpu, bool probe, std::string why) {
  return step_of(VgpuStep::Kind::set_autoprobe, gpu, probe ? 1 : 0, std::move(why));
}

void refuse(GpuPlan& plan, std::optional<Error> why) {
  if (!why) return;
  plan.reasons.push_back(why->message);
  if (!plan.refusal) {
    plan.refusal = std::move(why);
    return;
  }
  plan.refusal->message += "; " + why->message;
  if (plan.refusal->hint.empty()) plan.refusal->hint = std::move(why->hint);
}

std::optional<Error> cannot_change(const mdev::VgpuDevice& device, const std::string& what,
                                   const vfio::UseReport& use) {
  if (!use.blind.empty()) {
    return Error{
        .code = Errc::refused,
        .message = fmt::format("{}: Ferry cannot find out whether it is in use: {}", what, use.blind),
        .hint = remedy_of_blindness(use)};
  }
  if (use.of(device.id.text).empty()) return std::nullopt;
  return Error{.code = Errc::refused,
               .message = fmt::format("{}: {}", what, users_of(device, use)),
               .hint = "stop what uses it"};
}

std::optional<Error> cannot_write(const mdev::VgpuGpu& gpu, const VgpuSnapshot& snapshot) {
  const mdev::StuckGpus& stuck = snapshot.stuck;
  const auto parent_is_stuck = [&](const mdev::VgpuParent& p) { return stuck.is_on(p.address.text()); };
  const auto vgpu_is_stuck = [&](const mdev::VgpuDevice& d) { return stuck.is_on(d.id.text); };
  if (stuck.is_on(gpu.address().text()) || std::ranges::any_of(gpu.parents, parent_is_stuck) ||
      std::ranges::any_of(gpu.devices, vgpu_is_stuck)) {
    return Error{.code = Errc::stuck,
                 .message = gpu.label() + ": an earlier write has not returned from the kernel",
                 .hint = "it is left alone until then; if that never comes, only a reboot helps"};
  }
  if (const Error* problem = gpu.problem()) return Error(*problem).during(gpu.label());
  return std::nullopt;
}

Error no_answer(const mdev::VgpuGpu& gpu, const VgpuSnapshot& snapshot, const std::string& what) {
  const auto said = snapshot.managed.find(gpu.address());
  if (said == snapshot.managed.end())
    return {.code = Errc::unsupported, .message = what + ": it was not asked"};
  const Error& why = said->second.error();
  return {.code = Errc::unsupported, .message = what + ": " + why.message, .hint = why.hint};
}

VgpuPlan plan_each(const VgpuSnapshot& snapshot,
                   const std::function<GpuPlan(const VgpuSnapshot&, const mdev::VgpuGpu&)>& plan_one) {
  VgpuPlan plan{.gpus = {}, .notes = snapshot.inventory.notes};
  for (const std::string& unknown : snapshot.use.unknown)
    plan.notes.push_back("not all users are known: " + unknown);
  plan.gpus.reserve(snapshot.inventory.gpus.size());
  for (const mdev::VgpuGpu& gpu : snapshot.inventory.gpus) plan.gpus.push_back(plan_one(snapshot, gpu));
  plan_release(snapshot, plan);
  return plan;
}

GpuPlan unmatched(const mdev::VgpuGpu& gpu) {
  return {.index = gpu.index, .gpu = gpu.address(), .found = counts_of(gpu)};
}

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
    // A new vGPU has none. A whole virtual function that has kept some shows them once it is a vGPU.
    if (want.type == nullptr || params->entries.empty()) continue;
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
