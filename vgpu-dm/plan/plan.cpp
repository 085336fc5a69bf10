// SPDX-License-Identifier: Apache-2.0
#include "vgpu-dm/plan/plan.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/text/text.h"
#include "mdev/framework.h"
#include "vgpu-dm/plan/gpu_capacity.h"
#include "vgpu-dm/plan/gpu_match.h"
#include "vgpu-dm/plan/gpu_preparation.h"
#include "vgpu-dm/plan/placement.h"
#include "vgpu-dm/plan/plan_parts.h"
#include "vgpu-dm/plan/stable_uuid.h"

namespace ferry::vgpu {
namespace {

Error not_advertised(const Want& want, const mdev::VgpuGpu& gpu) {
  const std::string name = want.entry->type.text();
  const std::string place = want.entry->place + ": " + gpu.label();
  if (want.type != nullptr) {
    return {.code = Errc::invalid_config,
            .message = fmt::format("{}: its driver offers no {} now{}", place, name,
                                   gpu.devices.empty() ? ", though it carries nothing" : ""),
            .hint = "types that need a GPU instance are made in MIG mode only, the others only without it"};
  }
  std::vector<std::string> short_names;
  const auto add = [&](const std::vector<mdev::VgpuType>& types) {
    for (const mdev::VgpuType& type : types) {
      if (std::ranges::find(short_names, type.short_name) == short_names.end())
        short_names.push_back(type.short_name);
    }
  };
  for (const mdev::VgpuParent& parent : gpu.parents) add(parent.types);
  add(gpu.unlisted);
  return {.code = Errc::invalid_config,
          .message = fmt::format("{}: offers no type {}{}", place, name, did_you_mean(name, short_names)),
          .hint = fmt::format("it offers {}", fmt::join(short_names, ", "))};
}

/// Error if the missing vGPUs cannot be made here at all.
std::optional<Error> cannot_create(const GpuMatch& match, const mdev::VgpuGpu& gpu) {
  if (match.problem) return match.problem;
  const auto missing = std::ranges::find_if(match.wants, [](const Want& want) { return want.missing() > 0; });
  if (missing == match.wants.end()) return std::nullopt;
  if (!gpu.obstacle.empty()) {
    const std::string place = missing->entry->place + ": " + gpu.label();
    const bool none = !gpu.framework->makes_vgpus();
    std::string hint;
    if (gpu.offers_nothing()) {
      hint = fmt::format(
          "`ferry doctor --for vgpu` shows whether anything else is missing on this host; if not, {}",
          mdev::reason_for_no_types(gpu));
    } else if (none) {
      hint = gpu.awaits_types()
                 ? "start nvidia-vgpud.service, and try again"
                 : "choose the GPUs with devices or device-filter, or have the vGPU host driver take this "
                   "one; `ferry doctor --for vgpu` says what is missing";
    }
    return Error{.code = Errc::unsupported,
                 .message = none ? fmt::format("{}: no parent devices found: {}", place, gpu.obstacle)
                                 : fmt::format("{}: {}", place, gpu.obstacle),
                 .hint = std::move(hint)};
  }
  for (const Want& want : match.wants) {
    // In another MIG mode an empty GPU may list a type and make none of it.
    const bool can_be_made =
        want.listed && (!gpu.devices.empty() || std::ranges::any_of(gpu.parents, [&](const auto& parent) {
          return parent.available(want.type->id) > 0;
        }));
    if (can_be_made || want.missing() == 0) continue;
    // Present vGPUs may hide a type, and the driver may list it once they are removed. check_capacity()
    // reports missing capacity beside vGPUs that stay. For a board that is not in the table, unlisted types
    // are unknown.
    const bool may_exist = want.type != nullptr || (gpu.unlisted.empty() && !match.leftover.empty());
    if (may_exist && !gpu.devices.empty() && gpu.framework->lists_only_creatable_types()) continue;
    return not_advertised(want, gpu);
  }
  return std::nullopt;
}

/// Draws a UUID that is not in `taken`, and adds it there.
mdev::VgpuId draw_id(std::string_view node, const vfio::PciAddress& parent, const std::string& short_name,
                     std::set<mdev::VgpuId>& taken) {
  for (unsigned number = 0;; ++number) {
    mdev::VgpuId id = stable_uuid(node, parent, short_name, number);
    if (taken.insert(id).second) return id;
  }
}

/// Functions of a GPU for its new vGPUs.
struct FreeFunctions {
  std::set<vfio::PciAddress> taken;  ///< by vGPUs that stay or are planned
  std::set<vfio::PciAddress> freed;  ///< by vGPUs that leave; their types may not be listed yet
};

/// Takes the function for a GPU's new vGPU: the GPU itself, or a virtual function. A type gets the functions
/// that it has on an empty GPU, so that the same ones come after a reboot. If vGPUs that stay occupy these,
/// it gets the lowest free one. The choice does not affect the capacity. nullptr: none is free, which
/// check_capacity() has excluded.
const vfio::PciAddress* take_function(const Want& want, const mdev::VgpuGpu& gpu, FreeFunctions& functions) {
  if (!gpu.on_virtual_functions()) return &gpu.address();
  // If some free functions offer the type, functions that do not are skipped.
  const std::string& type = want.type->id;
  const bool listed_somewhere = std::ranges::any_of(gpu.parents, [&](const mdev::VgpuParent& parent) {
    return !functions.taken.contains(parent.address) && parent.available(type) > 0;
  });
  const vfio::PciAddress* chosen = nullptr;
  for (const mdev::VgpuParent& parent : gpu.parents) {
    if (functions.taken.contains(parent.address)) continue;
    const bool offers = parent.available(type) > 0 || functions.freed.contains(parent.address);
    if (listed_somewhere && !offers) continue;
    const bool is_usual = std::ranges::find(want.functions, parent.address) != want.functions.end();
    if (chosen == nullptr || is_usual) chosen = &parent.address;
    if (is_usual) break;
  }
  if (chosen != nullptr) functions.taken.insert(*chosen);
  return chosen;
}

void add_creations(const CapacityCheck& capacity, const GpuMatch& match, const mdev::VgpuGpu& gpu,
                   const VgpuSnapshot& snapshot, GpuPlan& plan) {
  std::set<mdev::VgpuId> taken_ids;
  for (const mdev::VgpuGpu& any : snapshot.inventory.gpus)
    for (const mdev::VgpuDevice& device : any.devices) taken_ids.insert(device.id);
  FreeFunctions functions;
  for (const mdev::VgpuDevice& device : gpu.devices) functions.taken.insert(device.parent);
  for (const mdev::VgpuDevice* device : match.leftover) {
    taken_ids.erase(device->id);
    functions.taken.erase(device->parent);
    functions.freed.insert(device->parent);
  }

  for (const Want* want : capacity.order) {
    if (!want->listed || !plan.then.empty()) {  // keeps their order
      plan.then.push_back({.type = want->entry->type.text(), .count = want->missing()});
      continue;
    }
    const std::string why = fmt::format("{} asks for {}, {} there", want->entry->place, want->entry->count,
                                        want->kept.empty()       ? "none is"
                                        : want->kept.size() == 1 ? "1 is"
                                                                 : fmt::format("{} are", want->kept.size()));
    for (std::uint32_t i = 0; i < want->missing(); ++i) {
      const vfio::PciAddress* parent = take_function(*want, gpu, functions);
      if (parent == nullptr) return;
      plan.steps.push_back({.kind = VgpuStep::Kind::create,
                            .framework = gpu.framework,
                            .id = gpu.framework->has_uuids()
                                      ? draw_id(snapshot.node, *parent, want->type->short_name, taken_ids)
                                      : mdev::VgpuId{parent->text()},
                            .parent = *parent,
                            .type_id = want->type->id,
                            .short_name = want->type->short_name,
                            .why = why});
    }
  }
}

bool has_no_maximum(const Want& want) {
  return want.type == nullptr || !want.type->max_instances;
}

// The driver tells its types only once the functions exist. A request that the table shows to be impossible
// is refused before that.
GpuPlan plan_functions(GpuPlan plan, std::vector<VgpuStep> later, const GpuMatch& match,
                       const mdev::VgpuGpu& gpu) {
  plan.refusal = match.problem;
  for (const Want& want : match.wants) {
    if (!plan.refusal && want.type == nullptr && !gpu.unlisted.empty())
      plan.refusal = not_advertised(want, gpu);
  }
  if (!plan.refusal) plan.refusal = lacking_when_empty(match, gpu);
  if (plan.refusal) return plan;
  plan.not_known = match.mixed_sizes || std::ranges::any_of(match.wants, has_no_maximum);
  plan.steps.push_back(
      functions_on(gpu, gpu.function.sriov_totalvfs, plan.place + " asks for vGPUs, and " + gpu.obstacle));
  plan.later = std::move(later);
  plan.then = plan.desired;
  return plan;
}

/// True if Ferry is known to have made the vGPU, or to have bound it to its VFIO driver.
bool is_by_ferry(const mdev::VgpuDevice& device, const mdev::VgpuGpu& gpu, const VgpuSnapshot& snapshot) {
  return gpu.framework->binds_functions() ? snapshot.bound_by_ferry.contains(device.parent)
                                          : is_ours(snapshot.node, device);
}

/// False: nothing shows who made the vGPUs of the GPU, which have no UUIDs.
bool shows_makers(const mdev::VgpuGpu& gpu) {
  return gpu.framework->has_uuids() || gpu.framework->binds_functions();
}

bool is_foreign(const mdev::VgpuDevice& device, const mdev::VgpuGpu& gpu, const VgpuSnapshot& snapshot) {
  return shows_makers(gpu) && !is_by_ferry(device, gpu, snapshot);
}

/// Error if no VM could get a virtual function of the GPU.
std::optional<Error> needs_iommu(const mdev::VgpuGpu& gpu) {
  if (!gpu.framework->binds_functions() || gpu.function.iommu_group) return std::nullopt;
  return Error{.code = Errc::unsupported,
               .message = gpu.label() + ": it is in no IOMMU group: no VM can get a virtual function of it",
               .hint = "`ferry doctor` says why the IOMMU is off"};
}

// A foreign vGPU that is not spared is removed, as under NVIDIA's program, and a note names it.
void add_removal(const mdev::VgpuDevice& device, const std::string& why, const mdev::VgpuGpu& gpu,
                 const VgpuSnapshot& snapshot, GpuPlan& plan) {
  const bool foreign = is_foreign(device, gpu, snapshot);
  plan.steps.push_back(removal_of(gpu, device, why + (foreign ? "; it was not made by Ferry" : "")));
  if (!foreign) return;
  plan.notes.push_back(fmt::format("{}: vGPU {} ({}) was not made by Ferry, and is removed: {}", gpu.label(),
                                   device.id.text, device.short_name, why));
}

void add_removals(const ProfileItem& item, const GpuMatch& match, const mdev::VgpuGpu& gpu,
                  const VgpuSnapshot& snapshot, GpuPlan& plan) {
  for (const mdev::VgpuDevice* device : match.leftover) {
    const std::string why = device->iommu_group ? fmt::format("{} does not ask for it", item.place)
                                                : "no driver has taken it, so no VM could be given it";
    add_removal(*device, why, gpu, snapshot, plan);
  }
}

std::optional<Error> cannot_spare(const std::vector<const mdev::VgpuDevice*>& leaving,
                                  const mdev::VgpuGpu& gpu, const VgpuSnapshot& snapshot) {
  if (!snapshot.spares_foreign) return std::nullopt;
  std::vector<std::string> foreign;
  for (const mdev::VgpuDevice* device : leaving) {
    if (is_foreign(*device, gpu, snapshot))
      foreign.push_back(fmt::format("{} ({})", device->id.text, device->short_name));
  }
  if (foreign.empty()) return std::nullopt;
  return Error{
      .code = Errc::refused,
      .message = fmt::format("{}: {} would have to be removed and {} not made by Ferry: {}", gpu.label(),
                             counted(foreign.size(), "vGPU"), foreign.size() == 1 ? "was" : "were",
                             fmt::join(foreign, ", ")),
      .hint =
          "--foreign takes such vGPUs too, unless the policy file says `foreign: keep`; `ferry vgpu export` "
          "prints all there are as a profile"};
}

// Refuses to remove or change vGPUs that are in use, or that cannot be changed.
void refuse_for_users(const GpuMatch& match, const mdev::VgpuGpu& gpu, const VgpuSnapshot& snapshot,
                      GpuPlan& plan) {
  refuse(plan, cannot_tune(match, gpu, snapshot.use));
  refuse(plan, cannot_place(match, gpu, snapshot.use));
  refuse(plan, in_use(gpu, match.leftover, snapshot.use, "stop what uses it, or ask for it in the profile"));
  refuse(plan, cannot_spare(match.leftover, gpu, snapshot));
}

// The steps that the types need come after the removals and before the creations.
GpuPlan plan_prepared(GpuPlan plan, const ProfileItem& item, Preparation first, const GpuMatch& match,
                      const mdev::VgpuGpu& gpu, const VgpuSnapshot& snapshot) {
  plan.refusal = lacking_when_empty(match, gpu);
  for (const Want& want : match.wants) {
    // A driver that does not list all its types may have more than are listed; the table knows them.
    const bool all_listed = gpu.framework->makes_vgpus() && !gpu.framework->lists_only_creatable_types();
    const bool all_known = all_listed || !gpu.unlisted.empty();
    if (!plan.refusal && want.type == nullptr && all_known) plan.refusal = not_advertised(want, gpu);
  }
  if (plan.refusal) return plan;
  const auto takes_functions = [](const VgpuStep& step) { return step.kind == VgpuStep::Kind::disable_vfs; };
  if (std::ranges::any_of(first.steps, takes_functions)) {
    for (Error& why : functions_in_use(gpu, snapshot.use, match.leftover)) refuse(plan, std::move(why));
  }
  refuse_for_users(match, gpu, snapshot, plan);
  if (plan.refusal) return plan;
  // The library has planned the GPU instances of MIG-backed types.
  plan.not_known = match.mixed_sizes || std::ranges::any_of(match.wants, [](const Want& want) {
                     return !want.entry->type.is_mig_backed() && has_no_maximum(want);
                   });
  add_removals(item, match, gpu, snapshot, plan);
  plan.steps.insert(plan.steps.end(), first.steps.begin(), first.steps.end());
  plan.later = std::move(first.later);
  for (const Want& want : match.wants) {
    if (want.missing() > 0) plan.then.push_back({.type = want.entry->type.text(), .count = want.missing()});
  }
  return plan;
}

// Plans a GPU that goes to a VM whole: no vfio driver binds a GPU that has virtual functions.
GpuPlan plan_whole(GpuPlan plan, const ProfileItem& item, const GpuMatch& match, const mdev::VgpuGpu& gpu,
                   const VgpuSnapshot& snapshot) {
  const bool sheds = sheds_functions(item, gpu);
  if (sheds) {
    refuse(plan, cannot_lose_instances(item, gpu, snapshot));
    for (Error& why : functions_in_use(gpu, snapshot.use, match.leftover)) refuse(plan, std::move(why));
  }
  refuse(plan, in_use(gpu, match.leftover, snapshot.use, "stop what uses it"));
  refuse(plan, cannot_spare(match.leftover, gpu, snapshot));
  if (plan.refusal) return plan;
  add_removals(item, match, gpu, snapshot, plan);
  if (sheds) plan.steps.push_back(functions_off(gpu, item.place + " gives it away whole"));
  return plan;
}

// The kernel changes the number of virtual functions only from and to 0, so every vGPU goes first.
GpuPlan plan_recount(GpuPlan plan, const ProfileItem& item, const GpuMatch& match, const mdev::VgpuGpu& gpu,
                     const VgpuSnapshot& snapshot, std::uint32_t number) {
  plan.kept.clear();
  for (const Want& want : match.wants) {
    if (plan.refusal) return plan;
    if (want.type == nullptr) {
      plan.refusal = not_advertised(want, gpu);
    } else if (want.entry->count > gpu.function.sriov_totalvfs) {
      plan.refusal = Error{
          .code = Errc::invalid_config,
          .message = fmt::format("{}: {}: no room for {} x {}: {} fit", want.entry->place, gpu.label(),
                                 want.entry->count, want.entry->type.text(), gpu.function.sriov_totalvfs),
          .hint = "'ferry vgpu types' shows what each GPU can carry"};
    }
  }
  if (!plan.refusal) plan.refusal = needs_iommu(gpu);
  if (plan.refusal) return plan;
  std::vector<const mdev::VgpuDevice*> leaving;
  for (const mdev::VgpuDevice& device : gpu.devices) leaving.push_back(&device);
  const bool has_some = gpu.function.sriov_numvfs > 0;
  if (has_some) {
    for (Error& why : functions_in_use(gpu, snapshot.use, leaving)) refuse(plan, std::move(why));
  }
  refuse(plan, in_use(gpu, leaving, snapshot.use, "stop what uses it"));
  refuse(plan, cannot_spare(leaving, gpu, snapshot));
  if (plan.refusal) return plan;
  const std::string why =
      fmt::format("{} asks for {}, and it has {}", item.place, counted(number, "virtual function"),
                  has_some ? std::to_string(gpu.function.sriov_numvfs) : "none");
  for (const mdev::VgpuDevice* device : leaving) add_removal(*device, why, gpu, snapshot, plan);
  if (has_some) plan.steps.push_back(functions_off(gpu, why));
  (has_some ? plan.later : plan.steps).push_back(functions_on(gpu, number, why));
  plan.then = plan.desired;
  return plan;
}

// Refuses functions that have another user and would have to be bound.
void refuse_for_bound(const mdev::VgpuGpu& gpu, const VgpuSnapshot& snapshot, GpuPlan& plan) {
  std::vector<std::string> reasons;
  bool any = false;
  for (const VgpuStep& step : plan.steps) {
    if (step.kind != VgpuStep::Kind::create || !step.binds_function()) continue;
    any = true;
    for (const vfio::DeviceUser& user : snapshot.use.of(step.parent.text()))
      reasons.push_back(fmt::format("virtual function {} would have to be bound to a VFIO driver: {}",
                                    step.parent.text(), user.text()));
  }
  if (any && !snapshot.use.blind.empty())
    reasons.push_back("Ferry cannot find out whether its virtual functions are in use: " +
                      snapshot.use.blind);
  if (any) refuse(plan, needs_iommu(gpu));
  if (!reasons.empty()) {
    refuse(plan, Error{.code = Errc::refused,
                       .message = fmt::format("{}: {}", gpu.label(), fmt::join(reasons, "; ")),
                       .hint = snapshot.use.blind.empty() ? "stop what uses it"
                                                          : remedy_of_blindness(snapshot.use)});
  }
  if (plan.refusal) plan.steps.clear();
}

GpuPlan plan_gpu(const ProfileItem& item, const mdev::VgpuGpu& gpu, const VgpuSnapshot& snapshot) {
  GpuPlan plan{.index = gpu.index, .gpu = gpu.address(), .matched = true, .place = item.place};
  const GpuMatch match = match_gpu(item, gpu, snapshot.use, snapshot.node, snapshot.spares_foreign);
  plan.desired = match.desired();
  plan.found = match.found();
  for (const Want& want : match.wants) {
    for (const mdev::VgpuDevice* device : want.kept) plan.kept.push_back(device->id);
  }
  if (match.agrees() && !sheds_functions(item, gpu)) {
    plan.refusal = cannot_write(gpu, snapshot);  // a count that could not be read does not agree
    return plan;
  }

  plan.refusal = cannot_write(gpu, snapshot);
  if (!plan.refusal) plan.refusal = match.problem;
  if (!plan.refusal && item.whole) return plan_whole(std::move(plan), item, match, gpu, snapshot);
  if (const auto number = match.functions; number && !plan.refusal)
    return plan_recount(std::move(plan), item, match, gpu, snapshot, *number);
  // No preparation would help such a GPU.
  if (!plan.refusal && !gpu.framework->makes_vgpus() && !gpu.may_get_virtual_functions())
    plan.refusal = cannot_create(match, gpu);
  if (plan.refusal) return plan;
  Preparation first = prepare(item, match, gpu, snapshot);
  plan.refusal = std::move(first.refusal);
  if (plan.refusal) return plan;
  if (!first.steps.empty())
    return plan_prepared(std::move(plan), item, std::move(first), match, gpu, snapshot);
  if (gpu.may_get_virtual_functions())
    return plan_functions(std::move(plan), std::move(first.later), match, gpu);
  plan.refusal = cannot_create(match, gpu);
  if (plan.refusal) return plan;
  CapacityCheck capacity = check_capacity(match, gpu, snapshot.managed_gpu(gpu.address()) != nullptr);
  plan.not_known = !capacity.notes.empty();
  plan.notes = std::move(capacity.notes);
  plan.refusal = std::move(capacity.lacking);
  if (plan.refusal) return plan;
  const auto hidden = std::ranges::find(capacity.order, false, &Want::listed);
  if (match.leftover.empty() && hidden != capacity.order.end()) refuse(plan, not_advertised(**hidden, gpu));
  refuse_for_users(match, gpu, snapshot, plan);
  if (plan.refusal) return plan;

  add_removals(item, match, gpu, snapshot, plan);
  add_moves(match, gpu, plan);
  add_creations(capacity, match, gpu, snapshot, plan);
  place_creations(match, plan);
  add_params(match, gpu, plan);
  refuse_for_bound(gpu, snapshot, plan);
  return plan;
}

}  // namespace

std::string GpuPlan::label() const {
  return fmt::format("GPU {} ({})", index, gpu.text());
}

std::vector<std::string> reasons_of(const Error& refusal, const std::vector<std::string>& reasons) {
  return reasons.empty() ? std::vector<std::string>{refusal.message} : reasons;
}

bool VgpuPlan::writes_nothing() const {
  return std::all_of(gpus.begin(), gpus.end(), [](const GpuPlan& plan) { return plan.steps.empty(); });
}

VgpuPlan plan_profile(const Profile& profile, const VgpuSnapshot& snapshot) {
  VgpuPlan plan = plan_each(snapshot, [&](const VgpuSnapshot& all, const mdev::VgpuGpu& gpu) {
    return plan_profile(profile, all, gpu);
  });
  for (const ProfileItem& item : profile.items) {
    const auto matches = [&](const mdev::VgpuGpu& gpu) { return item.matches(gpu); };
    if (std::ranges::none_of(snapshot.inventory.gpus, matches))
      plan.notes.push_back(item.place + ": matches no GPU of this node");
  }
  return plan;
}

GpuPlan plan_profile(const Profile& profile, const VgpuSnapshot& snapshot, const mdev::VgpuGpu& gpu) {
  if (const ProfileItem* item = profile.item_for(gpu)) {
    GpuPlan plan = plan_gpu(*item, gpu, snapshot);
    if (!plan.refusal && gpu.vf_autoprobe_left_off)
      plan.steps.insert(plan.steps.begin(),
                        autoprobe_step(gpu, true, "an earlier change ended before it wrote the 1 back"));
    return plan;
  }
  return unmatched(gpu);
}

VgpuPlan plan_removal(const Removal& removal, const VgpuSnapshot& snapshot) {
  return plan_each(snapshot, [&](const VgpuSnapshot& all, const mdev::VgpuGpu& gpu) {
    return plan_removal(removal, all, gpu);
  });
}

GpuPlan plan_removal(const Removal& removal, const VgpuSnapshot& snapshot, const mdev::VgpuGpu& gpu) {
  GpuPlan plan = unmatched(gpu);
  if (!removal.gpus.empty() && !removal.gpus.contains(gpu.address())) return plan;
  plan.matched = true;
  std::vector<const mdev::VgpuDevice*> leaving;
  for (const mdev::VgpuDevice& device : gpu.devices) {
    if (!removal.only.text.empty() && (device.id != removal.only || device.type_id != removal.only_type)) {
      plan.kept.push_back(device.id);
    } else if (removal.foreign || is_by_ferry(device, gpu, snapshot)) {
      leaving.push_back(&device);
    } else {
      plan.kept.push_back(device.id);
      plan.notes.push_back(fmt::format(
          "{}: vGPU {} ({}) {}: left; --foreign takes it too", gpu.label(), device.id.text, device.short_name,
          shows_makers(gpu) ? "was not made by Ferry" : "has no UUID that would tell whether Ferry made it"));
    }
  }
  plan.refusal = cannot_write(gpu, snapshot);  // a part that could not be read may hide vGPUs
  if (leaving.empty()) return plan;
  if (!plan.refusal) plan.refusal = in_use(gpu, leaving, snapshot.use, "stop what uses it");
  if (plan.refusal) return plan;
  for (const mdev::VgpuDevice* device : leaving)
    plan.steps.push_back(removal_of(gpu, *device, "asked to go"));
  return plan;
}

}  // namespace ferry::vgpu
