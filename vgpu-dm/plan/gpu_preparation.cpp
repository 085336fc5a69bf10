// SPDX-License-Identifier: Apache-2.0
#include "vgpu-dm/plan/gpu_preparation.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <ranges>
#include <utility>

#include <fmt/format.h>

#include "mdev/framework.h"
#include "vgpu-dm/plan/gpu_capacity.h"
#include "vgpu-dm/plan/plan_parts.h"

namespace ferry::vgpu {
namespace {

bool wants_instances(const ProfileItem& item) {
  return std::ranges::any_of(item.vgpus, [](const VgpuCount& entry) { return entry.type.is_mig_backed(); });
}

VgpuStep instance_step(VgpuStep::Kind kind, const mdev::VgpuGpu& gpu, std::uint32_t number,
                       std::string profile, std::string why) {
  VgpuStep step = step_of(kind, gpu, number, std::move(why));
  step.short_name = std::move(profile);
  return step;
}

VgpuStep switch_on_functions(const mdev::VgpuGpu& gpu, std::string why) {
  return functions_on(gpu, gpu.function.sriov_totalvfs, std::move(why));
}

Preparation refused(Errc code, std::string message, std::string hint) {
  return {.refusal = Error{make_error_code(code), std::move(message), std::move(hint)}};
}

/// "p.yaml:7: GPU 0 (0000:17:00.0)"
std::string label(const ProfileItem& item, const mdev::VgpuGpu& gpu) {
  return item.place + ": " + gpu.label();
}

Preparation cannot_ask(const ProfileItem& item, const mdev::VgpuGpu& gpu, const VgpuSnapshot& snapshot,
                       const char* what) {
  return {.refusal = no_answer(gpu, snapshot,
                               fmt::format("{}: {}, which NVML alone can see to", label(item, gpu), what))};
}

/// False: the GPU's types are all of other boards.
bool may_have(const VgpuTypeName& name, const mdev::VgpuGpu& gpu) {
  bool any = false;
  const auto is_of_board = [&](const mdev::VgpuType& type) {
    const auto own = VgpuTypeName::of_driver(type.short_name);
    any = any || own.has_value();
    return own && own->board == name.board;
  };
  const bool lists_one = std::ranges::any_of(gpu.parents, [&](const mdev::VgpuParent& parent) {
    return std::ranges::any_of(parent.types, is_of_board);
  });
  return lists_one || std::ranges::any_of(gpu.unlisted, is_of_board) || !any;
}

// Plans the MIG mode that the item's types need, before there are virtual functions.
Preparation plan_mode(const ProfileItem& item, const GpuMatch& match, const mdev::VgpuGpu& gpu,
                      const VgpuSnapshot& snapshot) {
  const bool on = wants_instances(item);
  const mdev::ManagedGpu* now = snapshot.managed_gpu(gpu.address());
  if (now == nullptr) {
    // Another program may have set the mode. If not, the GPU offers no type, and that is reported later.
    const bool all_listed =
        std::ranges::all_of(match.wants, [](const Want& want) { return want.missing() == 0 || want.listed; });
    // Present vGPUs may hide a type of an unknown board, and would be removed for it.
    const bool never_has_one =
        match.leftover.empty() && std::ranges::any_of(match.wants, [&](const Want& want) {
          return want.missing() > 0 && !want.listed && !may_have(want.entry->type, gpu);
        });
    if (!on || all_listed || never_has_one) return {};
    return cannot_ask(item, gpu, snapshot, "its vGPUs need GPU instances (MIG)");
  }
  if (!now->vgpu_host) {
    return refused(Errc::unsupported, label(item, gpu) + ": its driver is not one that makes vGPUs",
                   "install NVIDIA's vGPU host driver");
  }
  if (now->mig == (on ? mdev::GpuSwitch::on : mdev::GpuSwitch::off)) return {};
  if (now->mig == mdev::GpuSwitch::unsupported) {
    if (!on) return {};
    return refused(Errc::unsupported, label(item, gpu) + ": has no MIG mode, which its vGPUs need",
                   "ask for time-sliced types, such as L40S-12Q");
  }
  if (now->mig_pending == (on ? mdev::GpuSwitch::on : mdev::GpuSwitch::off)) {
    return refused(Errc::failed,
                   fmt::format("{}: MIG mode is switched {}, but not before the GPU is reset",
                               label(item, gpu), on ? "on" : "off"),
                   "reboot the node, then apply again");
  }
  const std::string why = fmt::format("{} asks for {} vGPUs", item.place, on ? "MIG-backed" : "time-sliced");
  Preparation out;
  if (gpu.function.sriov_numvfs > 0)
    out.steps.push_back(functions_off(gpu, "with them MIG mode cannot change"));
  out.steps.push_back(step_of(VgpuStep::Kind::set_mig, gpu, on ? 1 : 0, why));
  return out;
}

/// Maximum of the entry's type in the GPU's present mode, by the library; absent: unknown.
std::optional<std::uint32_t> most_in_mode(const Want& want, const mdev::ManagedGpu& now) {
  if (want.type == nullptr) return std::nullopt;
  // Found by name: the number of a type that the driver does not list now is not certain.
  const auto type = std::ranges::find(now.types, want.type->name, &mdev::ManagedType::name);
  return type == now.types.end() ? std::nullopt : type->most_per_gpu;
}

/// An entry with missing vGPUs whose count exceeds that maximum; nullptr: none.
const Want* beyond_mode(const GpuMatch& match, const mdev::ManagedGpu& now) {
  const auto is_beyond = [&](const Want& want) {
    return want.missing() > 0 && want.entry->count > most_in_mode(want, now).value_or(want.entry->count);
  };
  const auto found = std::ranges::find_if(match.wants, is_beyond);
  return found == match.wants.end() ? nullptr : &*found;
}

constexpr const char* kEmptyIt = "`ferry vgpu delete` removes its vGPUs";

// Plans to switch mixed sizes off: then more vGPUs of one size fit. Under vGPUs that stay it cannot change.
Preparation plan_one_size(const ProfileItem& item, const GpuMatch& match, const mdev::VgpuGpu& gpu,
                          const mdev::ManagedGpu& now) {
  if (now.mixed_sizes != mdev::GpuSwitch::on) return {};
  if (gpu.devices.size() == match.leftover.size()) {
    return {.steps = {step_of(VgpuStep::Kind::set_mixed_sizes, gpu, 0,
                              item.place + " asks for one size, of which more fit without")}};
  }
  const Want* beyond = beyond_mode(match, now);
  if (beyond == nullptr) return {};
  return refused(Errc::refused,
                 fmt::format("{}: no room for {} x {} while mixed sizes are on, and they can be switched off "
                             "only while the GPU carries nothing",
                             label(item, gpu), beyond->entry->count, beyond->entry->type.text()),
                 kEmptyIt);
}

Preparation plan_mixed_sizes(const ProfileItem& item, const GpuMatch& match, const mdev::VgpuGpu& gpu,
                             const VgpuSnapshot& snapshot, const mdev::ManagedGpu* now) {
  if (now == nullptr) return cannot_ask(item, gpu, snapshot, "it is to have vGPUs of different sizes");
  if (now->mixed_sizes == mdev::GpuSwitch::unsupported)
    return refused(Errc::unsupported, label(item, gpu) + ": cannot carry vGPUs of different sizes", "");
  // While the mode is off, the library tells the maximum of one size. Never more fit with the mode on.
  if (const Want* beyond = beyond_mode(match, *now)) {
    return refused(
        Errc::invalid_config,
        fmt::format("{}: no room for {} x {}: by its driver {} fit{}", label(item, gpu), beyond->entry->count,
                    beyond->entry->type.text(), most_in_mode(*beyond, *now).value_or(0),
                    now->mixed_sizes == mdev::GpuSwitch::on ? " while mixed sizes are on" : ""),
        "ask for fewer, or for one size, of which more fit");
  }
  if (now->mixed_sizes == mdev::GpuSwitch::on) return {};
  if (gpu.devices.size() > match.leftover.size()) {
    return refused(Errc::refused,
                   label(item, gpu) + ": mixed sizes can be switched on only while the GPU carries nothing",
                   kEmptyIt);
  }
  return {.steps = {step_of(VgpuStep::Kind::set_mixed_sizes, gpu, 1, item.place + " asks for mixed sizes")}};
}

// Plans GPU instances for MIG-backed types, or mixed sizes, once there are virtual functions. `now`: the
// library's answer, or nullptr.
Preparation plan_slices(const ProfileItem& item, const GpuMatch& match, const mdev::VgpuGpu& gpu,
                        const VgpuSnapshot& snapshot, const mdev::ManagedGpu* now) {
  if (!wants_instances(item)) {
    if (item.mixed_sizes) return plan_mixed_sizes(item, match, gpu, snapshot, now);
    return now == nullptr ? Preparation() : plan_one_size(item, match, gpu, *now);
  }
  if (now == nullptr) return {};  // plan_mode() found nothing missing
  std::vector<Want> wants;
  std::set<std::uint32_t> busy;
  const mdev::VgpuDevice* on_unknown = nullptr;  // the first one that stays and whose GPU instance is unknown
  for (const Want& want : match.wants) {
    if (!want.entry->type.is_mig_backed()) continue;
    wants.push_back(want);
    for (const mdev::VgpuDevice* device : want.kept) {
      if (device->gpu_instance)
        busy.insert(*device->gpu_instance);
      else if (on_unknown == nullptr)
        on_unknown = device;
    }
  }
  Preparation plan = plan_instances(gpu, wants, *now, busy);
  const bool some_go = std::ranges::any_of(
      plan.steps, [](const VgpuStep& step) { return step.kind == VgpuStep::Kind::remove_instance; });
  if (on_unknown != nullptr && some_go) {
    return refused(Errc::refused,
                   fmt::format("{}: GPU instances would have to be removed, and vGPU {} ({}), which stays, "
                               "does not show which it is on",
                               label(item, gpu), on_unknown->id.text, on_unknown->short_name),
                   "`ferry vgpu delete` removes the GPU's vGPUs; then no vGPU can be on them");
  }
  return plan;
}

/// A GPU instance that these steps delete and that could not be restored as it is; nullptr: none.
const mdev::GpuInstance* lost_by(const std::vector<VgpuStep>& steps, bool functions_first,
                                 const mdev::ManagedGpu* now) {
  if (now == nullptr) return nullptr;
  const auto found = std::ranges::find_if(now->instances, [&](const mdev::GpuInstance& instance) {
    if (!instance.divided) return false;
    return functions_first || std::ranges::any_of(steps, [&](const VgpuStep& step) {
             return step.kind == VgpuStep::Kind::remove_instance && step.number == instance.id;
           });
  });
  return found == now->instances.end() ? nullptr : &*found;
}

Preparation cannot_lose(const ProfileItem& item, const mdev::VgpuGpu& gpu,
                        const mdev::GpuInstance& instance) {
  return refused(
      Errc::refused,
      fmt::format("{}: GPU instance {} would have to be removed, and it is divided into compute instances",
                  label(item, gpu), instance.id),
      fmt::format("`nvidia-smi mig -dci -gi {}` removes them, once nothing uses them", instance.id));
}

}  // namespace

std::optional<Error> cannot_lose_instances(const ProfileItem& item, const mdev::VgpuGpu& gpu,
                                           const VgpuSnapshot& snapshot) {
  const mdev::GpuInstance* lost = lost_by({}, true, snapshot.managed_gpu(gpu.address()));
  if (lost == nullptr) return std::nullopt;
  return cannot_lose(item, gpu, *lost).refusal;
}

bool asks_library(const ProfileItem& item, const mdev::VgpuGpu& gpu) {
  if (!gpu.framework->by_nvidias_driver()) return false;
  if (sheds_functions(item, gpu)) return true;  // this deletes GPU instances too
  if (item.vgpus.empty()) return false;
  if (!gpu.on_virtual_functions() && !gpu.may_get_virtual_functions()) return false;
  if (wants_instances(item) || item.mixed_sizes) return true;
  if (gpu.may_get_virtual_functions()) return true;
  // Only the library tells if mixed sizes are on, and MIG mode while a type is not listed.
  const GpuMatch match = match_gpu(item, gpu, {}, {});
  return std::ranges::any_of(match.wants, [](const Want& want) { return want.missing() > 0; });
}

bool may_shed_functions(const ProfileItem& item, const mdev::VgpuGpu& gpu, const mdev::ManagedGpu* said) {
  if (sheds_functions(item, gpu)) return true;
  if (gpu.framework->binds_functions()) return !item.vgpus.empty();
  if (said == nullptr || gpu.function.sriov_numvfs == 0) return false;
  return said->mig != mdev::GpuSwitch::unsupported &&
         (said->mig == mdev::GpuSwitch::on) != wants_instances(item);
}

bool may_switch(const ProfileItem& item, const mdev::VgpuGpu& gpu, const mdev::ManagedGpu* said) {
  if (may_shed_functions(item, gpu, said)) return true;
  if (!item.vgpus.empty() && gpu.may_get_virtual_functions()) return true;
  if (said == nullptr) return false;
  const auto differs = [](mdev::GpuSwitch now, bool desired) {
    return now != mdev::GpuSwitch::unsupported && (now == mdev::GpuSwitch::on) != desired;
  };
  return differs(said->mig, wants_instances(item)) || differs(said->mixed_sizes, item.mixed_sizes);
}

Preparation prepare(const ProfileItem& item, const GpuMatch& match, const mdev::VgpuGpu& gpu,
                    const VgpuSnapshot& snapshot) {
  if (item.vgpus.empty()) return {};  // the library may have been asked for another profile
  const mdev::ManagedGpu* now = snapshot.managed_gpu(gpu.address());
  if (now == nullptr) {
    if (auto lacking = lacking_instances(match, gpu)) return {.refusal = std::move(lacking)};
  }
  Preparation mode = plan_mode(item, match, gpu, snapshot);
  if (mode.refusal) return mode;
  const bool functions_first = !mode.steps.empty() || gpu.may_get_virtual_functions();
  Preparation slices = plan_slices(item, match, gpu, snapshot, now);
  if (const mdev::GpuInstance* lost = lost_by(slices.steps, functions_first, now))
    return cannot_lose(item, gpu, *lost);
  // A library that does not answer now would not answer after a switch of functions either.
  if (slices.refusal && (wants_instances(item) || !functions_first || now == nullptr)) return slices;
  if (!functions_first) return slices;
  // The stages after the switch of MIG mode or of functions, which deletes GPU instances and mixed sizes.
  if (!mode.steps.empty()) mode.later.push_back(switch_on_functions(gpu, item.place + " asks for vGPUs"));
  if (now == nullptr) return mode;
  mdev::ManagedGpu then = *now;
  then.mig = wants_instances(item) ? mdev::GpuSwitch::on : mdev::GpuSwitch::off;
  then.instances.clear();
  for (mdev::GpuInstanceProfile& profile : then.profiles) profile.left = profile.most;
  if (then.mixed_sizes == mdev::GpuSwitch::on || now->mig == mdev::GpuSwitch::on)
    then.mixed_sizes = mdev::GpuSwitch::off;
  Preparation later = plan_slices(item, match, gpu, snapshot, &then);
  std::ranges::move(later.steps, std::back_inserter(mode.later));
  return mode;
}

std::vector<VgpuStep> plan_undo_preparation(const mdev::VgpuGpu& gpu, bool had_functions,
                                            const mdev::ManagedGpu& before, const mdev::ManagedGpu& now,
                                            const vfio::UseReport& use) {
  constexpr const char* kWhy = "it was so before";
  std::vector<VgpuStep> steps;
  const bool empty = !may_carry(gpu);
  if (empty && before.mig != now.mig) {
    if (gpu.function.sriov_numvfs > 0) {
      if (functions_in_use(gpu, use).empty()) steps.push_back(functions_off(gpu, kWhy));
    } else {
      steps.push_back(step_of(VgpuStep::Kind::set_mig, gpu, before.mig == mdev::GpuSwitch::on ? 1 : 0, kWhy));
    }
    return steps;
  }
  if (empty && had_functions && gpu.function.sriov_numvfs == 0) {
    steps.push_back(switch_on_functions(gpu, kWhy));
    return steps;
  }
  const auto name_of = [&](std::uint32_t profile) {
    const auto found = std::ranges::find(now.profiles, profile, &mdev::GpuInstanceProfile::id);
    return found == now.profiles.end() ? std::to_string(profile) : found->name;
  };
  std::map<std::uint32_t, int> balance;  // keyed by profile; above 0: so many are missing
  for (const mdev::GpuInstance& instance : before.instances) ++balance[instance.profile];
  for (const mdev::GpuInstance& instance : now.instances) --balance[instance.profile];
  const auto carries = [&](const mdev::GpuInstance& instance) {
    return std::ranges::find(gpu.devices, std::optional(instance.id), &mdev::VgpuDevice::gpu_instance) !=
           gpu.devices.end();
  };
  for (const mdev::GpuInstance& instance : std::views::reverse(now.instances)) {
    if (balance[instance.profile] >= 0 || carries(instance) || instance.divided) continue;
    ++balance[instance.profile];
    steps.push_back(instance_step(VgpuStep::Kind::remove_instance, gpu, instance.id,
                                  name_of(instance.profile), "it was not there before"));
  }
  if (!steps.empty()) return steps;
  for (const auto& [profile, missing] : balance) {
    for (int i = 0; i < missing; ++i)
      steps.push_back(instance_step(VgpuStep::Kind::make_instance, gpu, profile, name_of(profile), kWhy));
  }
  if (empty && steps.empty() && before.mixed_sizes != now.mixed_sizes &&
      before.mixed_sizes != mdev::GpuSwitch::unsupported && now.mixed_sizes != mdev::GpuSwitch::unsupported) {
    steps.push_back(step_of(VgpuStep::Kind::set_mixed_sizes, gpu,
                            before.mixed_sizes == mdev::GpuSwitch::on ? 1 : 0, kWhy));
  }
  return steps;
}

std::vector<std::string> preparation_not_put_back(const mdev::ManagedGpu& before,
                                                  const mdev::ManagedGpu& now) {
  std::vector<std::string> out;
  if (before.mig != now.mig) {
    out.emplace_back("its MIG mode is another one");
  } else if (before.mig_pending != now.mig_pending) {
    out.emplace_back("its MIG mode will be another one after its next reset");
  }
  if (before.mixed_sizes != now.mixed_sizes) out.emplace_back("its mode of mixed sizes is another one");
  const auto profiles = [](const mdev::ManagedGpu& gpu) {
    std::multiset<std::uint32_t> all;
    for (const mdev::GpuInstance& instance : gpu.instances) all.insert(instance.profile);
    return all;
  };
  if (profiles(before) != profiles(now)) out.emplace_back("it has other GPU instances");
  return out;
}

}  // namespace ferry::vgpu
