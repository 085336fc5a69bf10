// SPDX-License-Identifier: Apache-2.0
#include "host/node_description.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/text/text.h"
#include "common/text/words.h"
#include "mdev/framework.h"
#include "mdev/vgpu_inventory.h"
#include "policy/policy_comparison.h"

namespace ferry::host {
namespace {

std::string driver_of(const vfio::PciFunction& function) {
  return function.driver ? "driver " + *function.driver : "no driver";
}

std::vector<vfio::DeviceUser> users_of(const NodeSnapshot& snapshot, const vfio::PciFunction& function) {
  std::vector<vfio::DeviceUser> out;
  const auto add = [&](const std::string& device) {
    for (const vfio::DeviceUser& user : snapshot.use.of(device)) {
      if (std::ranges::find(out, user) == out.end()) out.push_back(user);
    }
  };
  for (const vfio::PciAddress& member : snapshot.inventory.group_of(function)) add(member.text());
  if (const mdev::VgpuGpu* gpu = snapshot.vgpus.find(function.address)) {
    for (const mdev::VgpuDevice& device : gpu->devices) add(device.id.text);
  }
  return out;
}

std::vector<MemberDescription> members_of(const NodeSnapshot& snapshot, const vfio::AcceleratorRules& rules,
                                          const vfio::PciFunction& function) {
  std::vector<MemberDescription> out;
  for (const vfio::PciAddress& address : snapshot.inventory.group_of(function)) {
    const vfio::PciFunction* other = snapshot.inventory.find(address);
    if (address == function.address || other == nullptr) continue;
    out.push_back({.function = *other,
                   .what = vfio::kind_of(*other),
                   .accelerator = rules.match(*other),
                   .blocks = vfio::blocks_viability(*other)});
  }
  return out;
}

std::vector<VgpuDescription> vgpus_of(const NodeSnapshot& snapshot, const mdev::VgpuGpu* gpu) {
  std::vector<VgpuDescription> out;
  if (gpu == nullptr) return out;
  for (const mdev::VgpuDevice& device : gpu->devices) {
    const auto users = snapshot.use.of(device.id.text);
    out.push_back({.device = device,
                   .users = {users.begin(), users.end()},
                   .advertised_as = advertised_as(snapshot, device.id.text, device.iommu_group)});
  }
  return out;
}

void add_outlook(const NodeSnapshot& snapshot, const vfio::AcceleratorRules& rules,
                 AcceleratorDescription& view) {
  const vfio::PciFunction& function = view.function;
  if (function.iommu_group)
    view.group_blockers = vfio::viability_blockers(snapshot.inventory, *function.iommu_group);
  view.group_viable = snapshot.inventory.has_iommu() && function.iommu_group && view.group_blockers.empty();
  if (const auto iommu = vfio::require_iommu(snapshot.inventory); !iommu) {
    view.movable_reasons = {iommu.error().message};
    view.movable_hint = iommu.error().hint;
    view.not_viable = view.movable_reasons;
    return;
  }
  vfio::RebindRequest request;
  request.accelerators = {function.address};
  request.untouchable = mdev::carriers_of_vgpus(snapshot.vgpus);
  const vfio::RebindPlan plan =
      vfio::plan_bind(snapshot.inventory, rules, request, vfio::UseReport{}, snapshot.drivers, {}, {});
  view.movable = plan.refusals.empty();
  if (view.movable) return;
  view.movable_reasons = plan.refusals.front().reasons;
  view.movable_hint = plan.refusals.front().hint;
  // The group may still be bound as a whole, by a command that names all its accelerators.
  for (const vfio::PciAddress& address : snapshot.inventory.group_of(function)) {
    const vfio::PciFunction* other = snapshot.inventory.find(address);
    if (other != nullptr && address != function.address && rules.match(*other))
      request.accelerators.push_back(address);
  }
  request.force = true;
  const vfio::RebindPlan together =
      vfio::plan_bind(snapshot.inventory, rules, request, vfio::UseReport{}, snapshot.drivers, {}, {});
  if (together.refusals.empty()) return;
  view.not_viable = together.refusals.front().reasons;
  view.not_viable_hint = together.refusals.front().hint;
}

std::string blocked_reason(const NodeSnapshot& snapshot, const AcceleratorDescription& view) {
  std::vector<std::string> who;
  for (const vfio::PciAddress& address : view.group_blockers) {
    const vfio::PciFunction* function = snapshot.inventory.find(address);
    if (function != nullptr)
      who.push_back(
          fmt::format("{} ({}, {})", address.text(), vfio::kind_of(*function), driver_of(*function)));
  }
  return fmt::format("{} {} the kernel from giving the group to a VM", fmt::join(who, ", "),
                     who.size() == 1 ? "keeps" : "keep");
}

const StuckWrite* stuck_on(const NodeSnapshot& snapshot, const AcceleratorDescription& view) {
  const auto found = std::ranges::find_if(snapshot.stuck, [&](const StuckWrite& act) {
    return concerns(act, view.address().text()) ||
           std::ranges::any_of(view.members, [&](const MemberDescription& member) {
             return concerns(act, member.function.address.text());
           });
  });
  return found == snapshot.stuck.end() ? nullptr : &*found;
}

// The host status comes before the observed state, since hostd knows the desired state.
std::optional<Condition> of_status(const api::AcceleratorStatus& status) {
  const std::string hint =
      status.hint.empty() ? "ferry hostd tries again by itself; its log says what it has tried" : status.hint;
  switch (status.state) {
    case api::GpuState::failed:
      return Condition{.word = "failed", .health = Health::bad, .reason = status.reason, .hint = hint};
    case api::GpuState::blocked:
      return Condition{.word = "blocked", .health = Health::bad, .reason = status.reason, .hint = hint};
    case api::GpuState::pending:
      return Condition{
          .word = "pending", .health = Health::attention, .reason = status.reason, .hint = status.hint};
    case api::GpuState::ready:
    case api::GpuState::unmanaged:
      break;
  }
  return std::nullopt;
}

// An empty list of users proves nothing if users may have been missed.
Condition free_as_far_as_seen(const NodeSnapshot& snapshot, const AcceleratorDescription& view) {
  const auto unseen = [&](const vfio::PciFunction& function) {
    return !snapshot.use.blind_to(function.address.text()).empty();
  };
  if (!unseen(view.function) && std::ranges::none_of(view.members, unseen, &MemberDescription::function))
    return {.word = "free"};
  return {.word = "use unknown",
          .health = Health::attention,
          .reason = "no device user was found, but Ferry cannot see all of them"};
}

Condition of_use(const NodeSnapshot& snapshot, const AcceleratorDescription& view) {
  if (!view.users.empty()) return {.word = "in use"};
  return free_as_far_as_seen(snapshot, view);
}

Condition of_passthrough(const NodeSnapshot& snapshot, const AcceleratorDescription& view) {
  if (!snapshot.inventory.has_iommu() || !view.function.iommu_group)
    return {.word = "no group",
            .health = Health::bad,
            .reason = "on a vfio driver without an IOMMU group: no VM can be given it"};
  if (!view.group_viable)
    return {.word = "not viable", .health = Health::bad, .reason = blocked_reason(snapshot, view)};
  const auto sick = std::ranges::find_if(view.advertised_as, &AdvertisedAs::sick);
  if (sick != view.advertised_as.end())
    return {
        .word = "unhealthy",
        .health = Health::bad,
        .reason = sick->reason,
        .hint = fmt::format("it is advertised again when that is over; an error of PCIe counts until it is "
                            "bound anew: `ferry vfio unbind --device {0}`, then `bind --device {0}`",
                            view.address().text())};
  if (std::ranges::any_of(view.advertised_as, &AdvertisedAs::held_with_group)) return {.word = "in use"};
  return of_use(snapshot, view);
}

Condition of_vgpu(const NodeSnapshot& snapshot, const AcceleratorDescription& view) {
  const auto used =
      std::ranges::count_if(view.vgpus, [](const VgpuDescription& vgpu) { return !vgpu.users.empty(); });
  const auto lost = std::ranges::find_if(view.vgpus, [](const VgpuDescription& vgpu) {
    return !vgpu.device.iommu_group || !vgpu.device.driver;
  });
  if (lost != view.vgpus.end())
    return {.word = "unusable",
            .health = Health::bad,
            .reason = fmt::format("vGPU {} has no {}: no VM can be given it", lost->device.id.text,
                                  lost->device.driver ? "IOMMU group" : "driver"),
            .hint = "removed and made again, it may get one: `ferry vgpu delete`, then `apply`"};
  if (used > 0) return {.word = fmt::format("{} in use", used)};
  return free_as_far_as_seen(snapshot, view);
}

/// True if the GPU is there for vGPUs. The files of SR-IOV alone do not show it: VMs may get the GPU whole.
bool is_for_vgpus(const AcceleratorDescription& view) {
  return view.framework->makes_vgpus() &&
         (!view.framework->binds_functions() || !view.vgpus.empty() || view.function.sriov_numvfs > 0);
}

// A GPU that is there for vGPUs is free, even if no VM can be given it whole.
Condition of_host_mode(const NodeSnapshot& snapshot, const AcceleratorDescription& view) {
  if (!view.users.empty() || is_for_vgpus(view)) return of_use(snapshot, view);
  if (view.status && view.status->desired == policy::Mode::vgpu && !view.obstacle.empty())
    return {.word = view.host_driver ? "no vGPU types" : "no vGPU host driver",
            .health = Health::attention,
            .reason = view.obstacle,
            .hint = "`ferry doctor --for vgpu` lists what is missing"};
  if (!view.not_viable.empty())
    return {.word = "not viable",
            .health = Health::attention,
            .reason = fmt::format("{}", fmt::join(view.not_viable, "; ")),
            .hint = view.not_viable_hint};
  return of_use(snapshot, view);
}

Condition condition_of(const NodeSnapshot& snapshot, const AcceleratorDescription& view) {
  if (view.function.problem)
    return {.word = "unreadable",
            .health = Health::bad,
            .reason = view.function.problem->message,
            .hint = view.function.problem->hint.empty()
                        ? "`dmesg` says what the kernel saw; a reset of its slot, or the machine off and on "
                          "again, may bring it back"
                        : view.function.problem->hint};
  if (const StuckWrite* act = stuck_on(snapshot, view))
    return {.word = "stuck",
            .health = Health::bad,
            .reason = fmt::format("an earlier act has not returned from the kernel: {} (pid {})", act->act,
                                  act->pid),
            .hint = "it is left alone until then; if that never comes, only a reboot helps"};
  // The host status may be outdated: it does not apply to a GPU whose mode or driver has changed since.
  if (view.status && view.status->mode == view.mode && view.status->driver == view.function.driver) {
    if (auto condition = of_status(*view.status)) return *condition;
  }
  switch (view.mode) {
    case policy::Mode::passthrough:
      return of_passthrough(snapshot, view);
    case policy::Mode::vgpu:
      return of_vgpu(snapshot, view);
    case policy::Mode::host:
      break;
  }
  if (!view.function.driver)
    return {.word = "no driver",
            .health = Health::attention,
            .reason = "no driver has taken it: neither the host nor a VM can use it now"};
  return of_host_mode(snapshot, view);
}

policy::Mode mode_of(const NodeSnapshot& snapshot, const vfio::PciFunction& function) {
  if (const mdev::VgpuGpu* gpu = snapshot.vgpus.find(function.address)) return ferry::policy::mode_of(*gpu);
  return vfio::on_vfio_driver(function) ? policy::Mode::passthrough : policy::Mode::host;
}

std::string why_not_advertised(const NodeSnapshot& snapshot, const vfio::PciAddress& address) {
  if (!snapshot.advertised) return {};
  const auto& all = snapshot.advertised->not_advertised;
  const auto left_out = std::ranges::find(all, address.text(), &api::NotAdvertised::id);
  return left_out == all.end() ? std::string() : left_out->reason;
}

AcceleratorDescription accelerator(const NodeSnapshot& snapshot, const vfio::AcceleratorRules& rules,
                                   const policy::ModelNames& models, const vfio::PciFunction& function) {
  const mdev::VgpuGpu* gpu = snapshot.vgpus.find(function.address);
  AcceleratorDescription view;
  view.function = function;
  view.model = models ? models(function) : function.ids();
  view.mode = mode_of(snapshot, function);
  view.members = members_of(snapshot, rules, function);
  view.users = users_of(snapshot, function);
  view.vgpus = vgpus_of(snapshot, gpu);
  view.framework = gpu == nullptr ? &mdev::no_framework() : gpu->framework;
  view.host_driver = gpu != nullptr && gpu->host_driver;
  view.obstacle = gpu == nullptr ? "" : gpu->obstacle;
  // Kata's plugin advertises numbers, so the IOMMU group tells which GPU is meant; a whole group is one GPU
  // then.
  view.advertised_as =
      advertised_as(snapshot, function.address.text(),
                    view.mode == policy::Mode::passthrough ? function.iommu_group : std::nullopt);
  view.not_advertised = why_not_advertised(snapshot, function.address);
  if (snapshot.state) {
    const auto status =
        std::ranges::find(snapshot.state->accelerators, function.address, &api::AcceleratorStatus::address);
    if (status != snapshot.state->accelerators.end()) view.status = *status;
  }
  if (const auto prior = snapshot.record.members.find(function.address); prior != snapshot.record.members.end())
    view.prior = prior->second;
  if (const auto facts = snapshot.facts.find(function.address); facts != snapshot.facts.end())
    view.facts = facts->second;
  add_outlook(snapshot, rules, view);
  view.condition = condition_of(snapshot, view);
  return view;
}

/// A virtual function of another vendor's accelerator that a vfio driver has.
bool is_passed_through_vf(const vfio::Inventory& inventory, const vfio::AcceleratorRules& rules,
                          const vfio::PciFunction& function) {
  return vfio::on_vfio_driver(function) && !rules.vendors.contains(function.vendor) &&
         vfio::is_accelerators_vf(inventory, rules, function);
}

NamedDescription named(const NodeSnapshot& snapshot, const policy::ModelNames& models,
                       const vfio::PciFunction& function) {
  return {.function = function,
          .model = models ? models(function) : std::string(),
          .advertised_as = advertised_as(snapshot, function.address.text(), {}),
          .not_advertised = why_not_advertised(snapshot, function.address)};
}

}  // namespace

std::string_view text(Health health) {
  constexpr Words<Health, 3> kWords = {
      {{"good", Health::good}, {"attention", Health::attention}, {"bad", Health::bad}}};
  return word_for(kWords, health);
}

std::vector<vfio::PciAddress> asked_of(const vfio::Inventory& inventory,
                                       const vfio::AcceleratorRules& rules) {
  std::vector<vfio::PciAddress> accelerators;
  for (const auto& [address, function] : inventory.functions) {
    if (rules.match(function)) accelerators.push_back(address);
  }
  return vfio::concerned(inventory, accelerators);
}

std::vector<AdvertisedAs> advertised_as(const NodeSnapshot& snapshot, const std::string& device,
                                        std::optional<std::uint32_t> group) {
  std::vector<AdvertisedAs> out;
  if (!snapshot.advertised) return out;
  // A number is Kata's ID for a group. An address or a UUID belongs to one device, even in the same group.
  const auto is_number = [](const std::string& id) {
    return id.find_first_not_of("0123456789") == std::string::npos;
  };
  for (const api::AdvertisedDevice& advertised : snapshot.advertised->devices) {
    if (advertised.id != device && !(is_number(advertised.id) && group == advertised.iommu_group)) continue;
    out.push_back({.resource = advertised.resource,
                   .id = advertised.id,
                   .healthy = advertised.healthy,
                   .allocated = advertised.allocated,
                   .reason = advertised.reason,
                   .pod = advertised.pod,
                   .held_with_group = advertised.held_with_group});
  }
  return out;
}

const AcceleratorDescription* NodeDescription::find(const vfio::PciAddress& address) const {
  const auto found = std::ranges::find(accelerators, address, &AcceleratorDescription::address);
  return found == accelerators.end() ? nullptr : &*found;
}

const NamedDescription* NodeDescription::find_by_name(const vfio::PciAddress& address) const {
  const auto found = std::ranges::find_if(
      by_name, [&](const NamedDescription& view) { return view.function.address == address; });
  return found == by_name.end() ? nullptr : &*found;
}

NodeDescription view_of(const NodeSnapshot& snapshot, const vfio::AcceleratorRules& rules,
                        const policy::ModelNames& models) {
  NodeDescription view;
  for (const auto& [address, function] : snapshot.inventory.functions) {
    if (rules.match(function)) {
      view.accelerators.push_back(accelerator(snapshot, rules, models, function));
    } else if (rules.match_by_name(function) || is_passed_through_vf(snapshot.inventory, rules, function)) {
      view.by_name.push_back(named(snapshot, models, function));
    }
  }
  view.whose = rules.whose;
  if (const auto iommu = vfio::require_iommu(snapshot.inventory); !iommu) view.no_iommu = iommu.error();
  view.iommu = snapshot.inventory.has_iommu();
  if (snapshot.state) {
    view.desired = snapshot.state->desired;
    view.phase = snapshot.state->phase;
    view.error = snapshot.state->error;
    view.hostd_runs = snapshot.hostd_runs;
    view.state_age = snapshot.state_age;
  }
  view.unknown = snapshot.use.unknown;
  view.notes = snapshot.vgpus.notes;
  view.notes.insert(view.notes.end(), snapshot.notes.begin(), snapshot.notes.end());
  return view;
}

}  // namespace ferry::host
