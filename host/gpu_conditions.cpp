// SPDX-License-Identifier: Apache-2.0
#include "host/gpu_conditions.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/text/text.h"
#include "host/usage/advertised_use_probe.h"
#include "mdev/vgpu.h"
#include "policy/policy_comparison.h"
#include "vfio/bind/driver_modules.h"
#include "vgpu-dm/types/type_capacity.h"

namespace ferry::host {
namespace {

// The most severe standing of a GPU counts, and the first of equal ones: a refusal by a later stage is a
// consequence.
void add(GpuConditions& conditions, const vfio::PciAddress& gpu, api::GpuState state,
         std::vector<std::string> reasons, std::string hint) {
  const auto weight = [](api::GpuState one) {
    return one == api::GpuState::failed    ? 3
           : one == api::GpuState::blocked ? 2
           : one == api::GpuState::pending ? 1
                                           : 0;
  };
  GpuCondition& known = conditions[gpu];
  if (weight(state) <= weight(known.state)) return;
  known = {.state = state, .reasons = std::move(reasons), .hint = std::move(hint), .users = {}};
}

void add(GpuConditions& conditions, const vfio::RebindPlan& plan, const std::string& what) {
  for (const vfio::Refusal& refusal : plan.refusals)
    for (const vfio::PciAddress& gpu : refusal.devices)
      add(conditions, gpu, api::GpuState::blocked, refusal.reasons, refusal.hint);
  for (const vfio::Rebind& rebind : plan.rebinds) {
    if (rebind.steps.empty()) continue;
    for (const vfio::PciAddress& gpu : rebind.devices)
      add(conditions, gpu, api::GpuState::pending, {what}, {});
  }
}

void add(GpuConditions& conditions, const vfio::RebindOutcome& outcome) {
  for (const vfio::RebindResult& result : outcome.results) {
    for (const vfio::PciAddress& gpu : result.devices) {
      if (result.status == vfio::RebindResult::Status::refused)
        add(conditions, gpu, api::GpuState::blocked, result.refusal.reasons, result.refusal.hint);
      else if (const auto done = result.check(); !done)
        add(conditions, gpu, api::GpuState::failed, {done.error().message}, done.error().hint);
    }
  }
}

void add_unavailable(std::vector<api::UnavailableDevice>& out, const std::string& id,
                     const std::string& reason) {
  const auto same = [&](const api::UnavailableDevice& one) { return one.id == id; };
  if (std::ranges::none_of(out, same)) out.push_back({.id = id, .reason = reason});
}

void add_rebinding(std::vector<api::UnavailableDevice>& out, const vfio::RebindPlan& plan,
                   const vfio::Inventory& inventory, const api::AdvertisedResources& advertised,
                   const std::string& reason) {
  for (const vfio::Rebind& rebind : plan.rebinds) {
    if (rebind.steps.empty()) continue;
    for (const vfio::PciAddress& member : rebind.rebinding()) {
      const vfio::PciFunction* function = inventory.find(member);
      if (function == nullptr) continue;
      // The plugin keeps a device that has lost its driver in its list, as Unhealthy.
      std::set<std::uint32_t> groups;
      if (function->iommu_group) groups.insert(*function->iommu_group);
      const bool is_listed = advertised.find({member.text()}, groups) != nullptr;
      if (vfio::on_vfio_driver(*function) || is_listed) add_unavailable(out, member.text(), reason);
    }
  }
}

bool is_allocated(const api::AdvertisedResources& advertised, const std::string& id,
                  const std::optional<std::uint32_t>& group) {
  return std::ranges::any_of(advertised.devices, [&](const api::AdvertisedDevice& device) {
    return device.allocated && (device.id == id || group == device.iommu_group);
  });
}

bool is_named(const vfio::DeviceUser& user, const std::string& reason) {
  return reason.find(user.text()) != std::string::npos;
}

// A tenant may open a GPU in any number of processes, and readers of the status refuse a large one.
constexpr std::size_t kMostUsers = 64;
constexpr std::size_t kLongestReason = 8UL << 10U;  // bytes

// If device users are the only obstacle, only those that the reasons name are listed: the users of a vGPU
// that stays may keep it.
void copy_into(const GpuCondition& condition, api::AcceleratorStatus& of) {
  of.state = condition.state;
  of.reason = beginning_of(fmt::format("{}", fmt::join(condition.reasons, "; ")), kLongestReason);
  of.hint = condition.hint;
  of.only_in_use = condition.state == api::GpuState::blocked && condition.only_in_use();
  for (const vfio::DeviceUser& user : condition.users) {
    const auto names_it = [&](const std::string& reason) { return is_named(user, reason); };
    if (of.only_in_use && std::ranges::none_of(condition.reasons, names_it)) continue;
    if (of.users.size() == kMostUsers) break;
    of.users.push_back(reported_user(user));
  }
}

// The facts about the function itself, on the host and ready.
api::AcceleratorStatus status_of(const vfio::PciFunction& function, const policy::ModelNames& models) {
  return {.address = function.address,
          .id = function.ids(),
          .subsystem = subsystem_of(function),
          .pci_class = fmt::format("{:04x}", static_cast<std::uint16_t>(function.pci_class())),
          .model = models ? models(function) : std::string(),
          .iommu_group = function.iommu_group,
          .driver = function.driver,
          .desired = std::nullopt,
          .state = api::GpuState::ready,
          .reason = {},
          .hint = {},
          .users = {},
          .vgpus = {}};
}

constexpr const char* kGoesBack = "its GPU goes back to the host";
constexpr const char* kDivided = "the vGPUs of its GPU change";

}  // namespace

std::string subsystem_of(const vfio::PciFunction& function) {
  if (!function.subsystem_vendor || !function.subsystem_device) return {};
  return fmt::format("{:04x}:{:04x}", *function.subsystem_vendor, *function.subsystem_device);
}

bool GpuCondition::only_in_use() const {
  return !users.empty() && std::ranges::all_of(reasons, [&](const std::string& reason) {
    return std::ranges::any_of(users, [&](const vfio::DeviceUser& user) { return is_named(user, reason); });
  });
}

api::ReportedUser reported_user(const vfio::DeviceUser& user) {
  return {.kind = std::string(text(user.kind)),
          .name = user.name,
          .pid = user.pid,
          .pod_uid = user.pod_uid,
          .by_the_plugin = user.kind == vfio::DeviceUser::Kind::pod && user.name == kSomePod};
}

GpuConditions conditions_of(const NodePreview& preview) {
  GpuConditions out;
  add(out, preview.unbound.plan, "goes back to the host");
  for (const vgpu::GpuPlan& gpu : preview.vgpus.gpus) {
    if (!gpu.matched) continue;
    if (gpu.refusal) {
      add(out, gpu.gpu, api::GpuState::blocked, vgpu::reasons_of(*gpu.refusal, gpu.reasons),
          gpu.refusal->hint);
    } else if (!gpu.steps.empty()) {
      add(out, gpu.gpu, api::GpuState::pending, {"its vGPUs change"}, {});
    }
  }
  add(out, preview.bound.plan, "goes to vfio");
  return out;
}

GpuConditions conditions_of(const NodeOutcome& outcome) {
  GpuConditions out;
  add(out, outcome.unbound);
  for (const vgpu::GpuOutcome& gpu : outcome.vgpus.gpus) {
    if (gpu.kind != vgpu::GpuOutcome::Kind::refused && gpu.kind != vgpu::GpuOutcome::Kind::failed) continue;
    const Error error = gpu.error.value_or(Error{.code = {}, .message = "not done"});
    std::vector<std::string> reasons = vgpu::reasons_of(error, gpu.reasons);
    for (const Error& undo : gpu.undo_errors) reasons.push_back(undo.message);
    add(out, gpu.gpu,
        gpu.kind == vgpu::GpuOutcome::Kind::failed ? api::GpuState::failed : api::GpuState::blocked, reasons,
        error.hint);
  }
  add(out, outcome.bound);
  return out;
}

bool any(const GpuConditions& conditions, api::GpuState state) {
  return std::ranges::any_of(conditions, [&](const auto& one) { return one.second.state == state; });
}

void add_unready(const ScannedNode& node, const std::map<vfio::PciAddress, policy::Mode>& desired,
                 GpuConditions& conditions) {
  for (const auto& [gpu, findings] : node.findings) {
    const auto mode = desired.find(gpu);
    const vfio::PciFunction* function = node.inventory.find(gpu);
    if (mode == desired.end() || function == nullptr) continue;
    const bool is_away = mode->second == policy::Mode::passthrough && vfio::on_vfio_driver(*function);
    if (const vfio::Finding* obstacle = is_away ? vfio::obstacle_to(findings, vfio::Blocks::ready)
                                                : vfio::illness_of(*function, findings))
      add(conditions, gpu, api::GpuState::blocked, {obstacle->text}, obstacle->advice);
  }
}

std::set<std::string> add_driverless(const ScannedNode& node,
                                     const std::map<vfio::PciAddress, policy::Mode>& desired,
                                     GpuConditions& conditions) {
  std::set<std::string> out;
  for (const auto& [gpu, mode] : desired) {
    const vfio::PciFunction* function = node.inventory.find(gpu);
    if (mode != policy::Mode::host || function == nullptr || conditions.contains(gpu)) continue;
    auto none = vfio::no_host_driver(*function);
    if (!none) continue;
    add(conditions, gpu, api::GpuState::blocked, {std::move(none->message)}, std::move(none->hint));
    out.insert(gpu.text());
  }
  return out;
}

bool writes(const NodePreview& preview) {
  const auto rebinds = [](const vfio::RebindPlan& plan) {
    return std::ranges::any_of(plan.rebinds,
                               [](const vfio::Rebind& rebind) { return !rebind.steps.empty(); });
  };
  return rebinds(preview.unbound.plan) || !preview.vgpus.writes_nothing() || rebinds(preview.bound.plan);
}

std::set<std::string> ids_of(const std::vector<api::UnavailableDevice>& unavailable) {
  std::set<std::string> ids;
  for (const api::UnavailableDevice& one : unavailable) ids.insert(one.id);
  return ids;
}

std::vector<api::UnavailableDevice> unavailable_before_change(const NodePreview& preview,
                                                              const ScannedNode& node,
                                                              const api::AdvertisedResources& advertised) {
  std::vector<api::UnavailableDevice> out;
  add_rebinding(out, preview.unbound.plan, node.inventory, advertised, kGoesBack);
  for (const vgpu::GpuPlan& gpu : preview.vgpus.gpus) {
    if (gpu.refusal) continue;
    for (const auto& steps : {gpu.steps, gpu.later})
      for (const vgpu::VgpuStep& step : steps)
        if (step.kind != vgpu::VgpuStep::Kind::create && node.vgpus.find(step.id) != nullptr)
          add_unavailable(out, step.id.text, kDivided);
  }
  add_rebinding(out, preview.bound.plan, node.inventory, advertised, "its group gets another vfio driver");
  return out;
}

std::vector<api::UnavailableDevice> unavailable_until_made(const NodePreview& preview) {
  std::vector<api::UnavailableDevice> out;
  for (const vgpu::GpuPlan& gpu : preview.vgpus.gpus) {
    if (gpu.refusal) continue;
    for (const auto& steps : {gpu.steps, gpu.later})
      for (const vgpu::VgpuStep& step : steps)
        if (step.kind == vgpu::VgpuStep::Kind::create) add_unavailable(out, step.id.text, "it is being made");
  }
  for (const vfio::Rebind& rebind : preview.bound.plan.rebinds) {
    if (rebind.steps.empty()) continue;
    for (const vfio::PciAddress& member : rebind.rebinding())
      add_unavailable(out, member.text(), "it is on its way to vfio");
  }
  return out;
}

std::vector<api::UnavailableDevice> unavailable_until_pod_ends(const GpuConditions& conditions,
                                                               const ScannedNode& node,
                                                               const api::AdvertisedResources& advertised) {
  std::vector<api::UnavailableDevice> out;
  for (const auto& [address, condition] : conditions) {
    const vfio::PciFunction* function = node.inventory.find(address);
    if (condition.state != api::GpuState::blocked || function == nullptr || !condition.only_in_use())
      continue;
    if (is_allocated(advertised, address.text(), function->iommu_group))
      for (const vfio::PciAddress& member : node.inventory.group_of(*function))
        add_unavailable(out, member.text(), kGoesBack);
    const mdev::VgpuGpu* gpu = node.vgpus.find(address);
    if (gpu == nullptr) continue;
    // Only vGPUs of pods that the reasons name are unavailable. A free one may be desired; if not, it goes
    // first.
    for (const mdev::VgpuDevice& vgpu : gpu->devices)
      if (is_allocated(advertised, vgpu.id.text, vgpu.iommu_group) &&
          std::ranges::any_of(condition.reasons, [&](const std::string& reason) {
            return reason.find(vgpu.id.text) != std::string::npos;
          }))
        add_unavailable(out, vgpu.id.text, kDivided);
  }
  return out;
}

std::vector<api::AcceleratorStatus> describe(const ScannedNode& node,
                                             const std::map<vfio::PciAddress, policy::Mode>& desired,
                                             const GpuConditions& conditions,
                                             const policy::ModelNames& models,
                                             const std::set<vfio::PciAddress>& dra) {
  std::vector<api::AcceleratorStatus> out;
  for (const mdev::VgpuGpu& gpu : node.vgpus.gpus) {
    const auto mode = desired.find(gpu.address());
    const bool for_dra = dra.contains(gpu.address());
    api::AcceleratorStatus one = status_of(gpu.function, models);
    one.mode = policy::mode_of(gpu);
    if (mode != desired.end()) one.desired = mode->second;
    if (for_dra) one.allocation = api::Allocation::dra;
    if (mode == desired.end() && !for_dra) one.state = api::GpuState::unmanaged;
    if (const auto condition = conditions.find(gpu.address()); condition != conditions.end())
      copy_into(condition->second, one);
    if (const auto findings = node.findings.find(gpu.address()); findings != node.findings.end()) {
      one.findings.emplace();
      for (const vfio::Finding& finding : findings->second)
        if (finding.rule != vfio::RuleId::in_use) one.findings->push_back(api::reported(finding));
    }
    for (const mdev::VgpuDevice& vgpu : gpu.devices)
      one.vgpus.push_back({.id = vgpu.id.text, .type = vgpu.short_name});
    // Types without a name of their own are left out, since a policy cannot ask for them.
    if (one.mode != policy::Mode::passthrough)
      for (const mdev::VgpuType& type : vgpu::types_of(gpu))
        if (type.name != type.id) one.more_vgpus[type.short_name] += type.available;
    out.push_back(std::move(one));
  }
  // Functions that a removed GPU left behind, as long as they do not come back.
  for (const auto& [address, condition] : conditions) {
    const vfio::PciFunction* function = node.inventory.find(address);
    if (function == nullptr || node.vgpus.find(address) != nullptr) continue;
    api::AcceleratorStatus one = status_of(*function, models);
    if (vfio::on_vfio_driver(*function)) one.mode = policy::Mode::passthrough;
    one.desired = policy::Mode::host;
    copy_into(condition, one);
    out.push_back(std::move(one));
  }
  return out;
}

namespace {

constexpr const char* kMachine = "sys/class/dmi/id/product_name";

std::optional<std::uint32_t> largest_group(const ScannedNode& node) {
  std::optional<std::uint32_t> out;
  for (const mdev::VgpuGpu& gpu : node.vgpus.gpus) {
    if (!gpu.function.iommu_group) continue;
    const auto members = node.inventory.group_of(gpu.function).size();
    out = std::max(out.value_or(0), static_cast<std::uint32_t>(members));
  }
  return out;
}

std::map<std::string, std::uint32_t> vgpu_types(const mdev::VgpuInventory& vgpus) {
  std::map<std::string, std::uint32_t> out;
  std::set<std::string> unknown;
  for (const mdev::VgpuGpu& gpu : vgpus.gpus) {
    // Maximum instances by the type's short name; absent values: the driver does not say.
    std::map<std::string, std::optional<std::uint32_t>> maxima;
    const auto listed = vgpu::types_of(gpu);
    for (const auto* types : {&listed, &gpu.unlisted})
      for (const mdev::VgpuType& type : *types)
        if (type.name != type.id) maxima.emplace(type.short_name, type.max_instances);

    const bool unread = std::ranges::any_of(
        gpu.parents, [](const mdev::VgpuParent& parent) { return parent.problem.has_value(); });
    // An unread parent may have types that the total would miss, so no total is given.
    if (maxima.empty() && unread) return {};
    for (const auto& [name, most] : maxima) {
      out[name] += most.value_or(0);
      if (!most) unknown.insert(name);
    }
  }
  for (const std::string& name : unknown) out.erase(name);
  return out;
}

}  // namespace

std::string machine_name(const HostFs& host) {
  return host.read_attribute(kMachine).value_or("");
}

api::NodeFeatures features_of(const ScannedNode& node) {
  const char* const iommu = node.inventory.has_iommu() ? "on" : "off";
  return {.iommu = node.inventory.unsafe_noiommu ? "unsafe_noiommu" : iommu,
          .largest_group = largest_group(node),
          .machine = node.machine,
          .vgpu_types = vgpu_types(node.vgpus)};
}

bool adds_or_changes(const GpuConditions& after, const GpuConditions& before) {
  return std::ranges::any_of(after, [&](const auto& one) {
    const auto known = before.find(one.first);
    return known == before.end() || known->second.state != one.second.state;
  });
}

bool only_pods_hold(const GpuConditions& conditions) {
  const auto is_a_pods = [](const vfio::DeviceUser& user) {
    return user.pid || user.kind == vfio::DeviceUser::Kind::pod;
  };
  bool some_blocked = false;
  bool some_held = false;
  for (const auto& [gpu, condition] : conditions) {
    if (condition.state != api::GpuState::blocked) continue;
    some_blocked = true;
    if (!condition.only_in_use()) continue;
    some_held = true;
    if (!std::ranges::all_of(condition.users, is_a_pods)) return false;
  }
  return some_held || !some_blocked;
}

}  // namespace ferry::host
