// SPDX-License-Identifier: Apache-2.0
#include "host/node_standings.h"

#include <algorithm>
#include <iterator>
#include <span>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "host/offered_use_probe.h"
#include "policy/policy_verdict.h"

namespace ferry {
namespace {

// The most severe standing of a GPU counts, and the first of equal ones: a refusal by a later stage is a
// consequence.
void add(GpuStandings& standings, const PciAddress& gpu, Standing state, std::vector<std::string> reasons,
         std::string hint) {
  const auto weight = [](Standing one) {
    return one == Standing::failed ? 3 : one == Standing::refused ? 2 : one == Standing::waiting ? 1 : 0;
  };
  GpuStanding& known = standings[gpu];
  if (weight(state) <= weight(known.state)) return;
  known = {.state = state, .reasons = std::move(reasons), .hint = std::move(hint), .holders = {}};
}

void add(GpuStandings& standings, const MovePlan& plan, const std::string& what) {
  for (const Refusal& refusal : plan.refusals)
    for (const PciAddress& gpu : refusal.devices)
      add(standings, gpu, Standing::refused, refusal.reasons, refusal.hint);
  for (const Move& move : plan.moves) {
    if (move.steps.empty()) continue;
    for (const PciAddress& gpu : move.devices) add(standings, gpu, Standing::waiting, {what}, {});
  }
}

void add(GpuStandings& standings, const MoveOutcome& outcome) {
  for (const MoveResult& result : outcome.results) {
    for (const PciAddress& gpu : result.devices) {
      if (result.status == MoveResult::Status::refused)
        add(standings, gpu, Standing::refused, result.refusal.reasons, result.refusal.hint);
      if (result.status != MoveResult::Status::failed) continue;
      const Error error = result.error.value_or(Error{.code = {}, .message = "not done", .hint = {}});
      add(standings, gpu, Standing::failed, {error.message}, error.hint);
    }
  }
}

void withdraw(std::vector<Withdrawal>& out, const std::string& id, const std::string& reason) {
  const auto same = [&](const Withdrawal& one) { return one.id == id; };
  if (std::ranges::none_of(out, same)) out.push_back({.id = id, .reason = reason});
}

// The plugin keeps a device that has lost its driver in its list, as Unhealthy.
bool is_listed(const OfferedDevices& offered, const PciFunction& function) {
  std::set<std::uint32_t> groups;
  if (function.iommu_group) groups.insert(*function.iommu_group);
  return offered.find({function.address.text()}, groups) != nullptr;
}

void add_going(std::vector<Withdrawal>& out, const MovePlan& plan, const Inventory& inventory,
               const OfferedDevices& offered, const std::string& reason) {
  for (const Move& move : plan.moves) {
    if (move.steps.empty()) continue;
    for (const PciAddress& member : move.moving()) {
      const PciFunction* function = inventory.find(member);
      if (function != nullptr && (on_vfio_driver(*function) || is_listed(offered, *function)))
        withdraw(out, member.text(), reason);
    }
  }
}

bool is_allocated(const OfferedDevices& offered, const std::string& id,
                  const std::optional<std::uint32_t>& group) {
  return std::ranges::any_of(offered.devices, [&](const OfferedToKubelet& device) {
    return device.allocated && (device.id == id || group == device.iommu_group);
  });
}

const PciAddress* gpu_of(const VgpuInventory& vgpus, const VgpuStep& step) {
  for (const VgpuGpu& gpu : vgpus.gpus)
    if (std::ranges::any_of(gpu.devices, [&](const VgpuDevice& one) { return one.id == step.id; }))
      return &gpu.address();
  return nullptr;
}

bool is_named(const Holder& holder, const std::string& reason) {
  return reason.find(holder.text()) != std::string::npos;
}

// If device users are the only obstacle, only those that the reasons name are listed: the users of a vGPU
// that stays may keep it.
void tell(const GpuStanding& standing, AcceleratorState& of) {
  of.state = standing.state;
  of.reason = fmt::format("{}", fmt::join(standing.reasons, "; "));
  of.hint = standing.hint;
  of.only_in_use = standing.state == Standing::refused && standing.only_in_use();
  for (const Holder& holder : standing.holders) {
    const auto names_it = [&](const std::string& reason) { return is_named(holder, reason); };
    if (of.only_in_use && std::ranges::none_of(standing.reasons, names_it)) continue;
    of.holders.push_back(state_holder(holder));
  }
}

std::string subsystem_of(const PciFunction& function) {
  if (!function.subsystem_vendor || !function.subsystem_device) return {};
  return fmt::format("{:04x}:{:04x}", *function.subsystem_vendor, *function.subsystem_device);
}

std::string class_of(const PciFunction& function) {
  return fmt::format("{:04x}", static_cast<std::uint16_t>(function.pci_class()));
}

constexpr const char* kGoesBack = "its GPU goes back to the host";
constexpr const char* kDivided = "the vGPUs of its GPU change";

// Types without a name of their own are left out, since a policy cannot ask for them.
std::map<std::string, std::uint32_t> room_of(const VgpuGpu& gpu) {
  std::map<std::string, std::uint32_t> out;
  for (const VgpuType& type : types_of(gpu))
    if (type.name != type.id) out[type.short_name] += type.available;
  return out;
}

}  // namespace

bool GpuStanding::only_in_use() const {
  return !holders.empty() && std::ranges::all_of(reasons, [&](const std::string& reason) {
    return std::ranges::any_of(holders, [&](const Holder& holder) { return is_named(holder, reason); });
  });
}

StateHolder state_holder(const Holder& holder) {
  return {.kind = std::string(text(holder.kind)),
          .name = holder.name,
          .pid = holder.pid,
          .pod_uid = holder.pod_uid,
          .by_the_plugin = holder.kind == Holder::Kind::pod && holder.name == kSomePod};
}

GpuStandings standings_of(const NodePreview& preview) {
  GpuStandings out;
  add(out, preview.given_back.plan, "goes back to the host");
  for (const GpuPlan& gpu : preview.vgpus.gpus) {
    if (!gpu.matched) continue;
    if (gpu.refusal) {
      add(out, gpu.gpu, Standing::refused, reasons_of(*gpu.refusal, gpu.reasons), gpu.refusal->hint);
    } else if (!gpu.steps.empty()) {
      add(out, gpu.gpu, Standing::waiting, {"its vGPUs change"}, {});
    }
  }
  add(out, preview.given_away.plan, "goes to vfio");
  return out;
}

GpuStandings standings_of(const NodeOutcome& outcome) {
  GpuStandings out;
  add(out, outcome.given_back);
  for (const GpuOutcome& gpu : outcome.vgpus.gpus) {
    if (gpu.kind != GpuOutcome::Kind::refused && gpu.kind != GpuOutcome::Kind::failed) continue;
    const Error error = gpu.error.value_or(Error{.code = {}, .message = "not done", .hint = {}});
    std::vector<std::string> reasons = reasons_of(error, gpu.reasons);
    for (const Error& undo : gpu.undo_errors) reasons.push_back(undo.message);
    add(out, gpu.gpu, gpu.kind == GpuOutcome::Kind::failed ? Standing::failed : Standing::refused, reasons,
        error.hint);
  }
  add(out, outcome.given_away);
  return out;
}

bool any(const GpuStandings& standings, Standing state) {
  return std::ranges::any_of(standings, [&](const auto& one) { return one.second.state == state; });
}

bool writes(const NodePreview& preview) {
  const auto moves = [](const MovePlan& plan) {
    return std::ranges::any_of(plan.moves, [](const Move& move) { return !move.steps.empty(); });
  };
  return moves(preview.given_back.plan) || !preview.vgpus.writes_nothing() || moves(preview.given_away.plan);
}

std::vector<Withdrawal> going(const NodePreview& preview, const ScannedNode& node,
                              const OfferedDevices& offered) {
  std::vector<Withdrawal> out;
  add_going(out, preview.given_back.plan, node.inventory, offered, kGoesBack);
  for (const GpuPlan& gpu : preview.vgpus.gpus) {
    if (gpu.refusal) continue;
    for (const auto& steps : {gpu.steps, gpu.later})
      for (const VgpuStep& step : steps)
        if (step.kind != VgpuStep::Kind::create && gpu_of(node.vgpus, step) != nullptr)
          withdraw(out, step.id.text, kDivided);
  }
  add_going(out, preview.given_away.plan, node.inventory, offered, "its group gets another vfio driver");
  return out;
}

std::vector<Withdrawal> coming(const NodePreview& preview) {
  std::vector<Withdrawal> out;
  for (const GpuPlan& gpu : preview.vgpus.gpus) {
    if (gpu.refusal) continue;
    for (const auto& steps : {gpu.steps, gpu.later})
      for (const VgpuStep& step : steps)
        if (step.kind == VgpuStep::Kind::create) withdraw(out, step.id.text, "it is being made");
  }
  for (const Move& move : preview.given_away.plan.moves) {
    if (move.steps.empty()) continue;
    for (const PciAddress& member : move.moving()) withdraw(out, member.text(), "it is on its way to vfio");
  }
  return out;
}

std::vector<Withdrawal> awaited(const GpuStandings& standings, const ScannedNode& node,
                                const OfferedDevices& offered) {
  std::vector<Withdrawal> out;
  for (const auto& [address, standing] : standings) {
    const PciFunction* function = node.inventory.find(address);
    if (standing.state != Standing::refused || function == nullptr || !standing.only_in_use()) continue;
    if (is_allocated(offered, address.text(), function->iommu_group))
      for (const PciAddress& member : node.inventory.group_of(*function))
        withdraw(out, member.text(), kGoesBack);
    const VgpuGpu* gpu = node.vgpus.find(address);
    if (gpu == nullptr) continue;
    // Only vGPUs of pods that the reasons name are withdrawn. A free one may be desired; if not, it goes
    // first.
    for (const VgpuDevice& vgpu : gpu->devices)
      if (is_allocated(offered, vgpu.id.text, vgpu.iommu_group) &&
          std::ranges::any_of(standing.reasons, [&](const std::string& reason) {
            return reason.find(vgpu.id.text) != std::string::npos;
          }))
        withdraw(out, vgpu.id.text, kDivided);
  }
  return out;
}

std::vector<AcceleratorState> describe(const ScannedNode& node, const std::map<PciAddress, Mode>& wanted,
                                       const GpuStandings& standings, const ModelNames& models) {
  std::vector<AcceleratorState> out;
  for (const VgpuGpu& gpu : node.vgpus.gpus) {
    const auto mode = wanted.find(gpu.address());
    AcceleratorState one{.address = gpu.address(),
                         .id = gpu.function.ids(),
                         .subsystem = subsystem_of(gpu.function),
                         .pci_class = class_of(gpu.function),
                         .model = models ? models(gpu.function) : std::string(),
                         .iommu_group = gpu.function.iommu_group,
                         .driver = gpu.function.driver,
                         .mode = mode_of(gpu),
                         .wanted = mode == wanted.end() ? std::nullopt : std::optional(mode->second),
                         .state = mode == wanted.end() ? Standing::left_alone : Standing::as_wanted,
                         .reason = {},
                         .hint = {},
                         .holders = {},
                         .vgpus = {}};
    if (const auto standing = standings.find(gpu.address()); standing != standings.end())
      tell(standing->second, one);
    for (const VgpuDevice& vgpu : gpu.devices)
      one.vgpus.push_back({.id = vgpu.id.text, .type = vgpu.short_name});
    if (one.mode != Mode::passthrough) one.more_vgpus = room_of(gpu);
    out.push_back(std::move(one));
  }
  // Functions that a removed GPU left behind, as long as they do not come back.
  for (const auto& [address, standing] : standings) {
    const PciFunction* function = node.inventory.find(address);
    if (function == nullptr || node.vgpus.find(address) != nullptr) continue;
    out.push_back({.address = address,
                   .id = function->ids(),
                   .subsystem = subsystem_of(*function),
                   .pci_class = class_of(*function),
                   .model = models ? models(*function) : std::string(),
                   .iommu_group = function->iommu_group,
                   .driver = function->driver,
                   .mode = on_vfio_driver(*function) ? Mode::passthrough : Mode::host,
                   .wanted = Mode::host,
                   .state = Standing::as_wanted,
                   .reason = {},
                   .hint = {},
                   .holders = {},
                   .vgpus = {}});
    tell(standing, out.back());
  }
  return out;
}

}  // namespace ferry
