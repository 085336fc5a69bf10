// SPDX-License-Identifier: Apache-2.0
#include "host/claims/gpu_allocation.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "vfio/bind/rebind_plan.h"

namespace ferry::host {
namespace {

constexpr const char* kForDra = "the policy gives this GPU to DRA claims";
constexpr const char* kWaitsForPlugin = "it goes to DRA once the device plugin has made it unavailable";
constexpr const char* kClaimed = "a ResourceClaim has it";
constexpr const char* kFunctionsRemedy =
    "enable them by the driver's tool (`sriov-manage -e GPU`), or give the GPU `mode: vgpu` for a while";
constexpr const char* kClaimsRemedy = "delete the pod or the VM of the claim first";

/// The GPUs of a function's IOMMU group, with the GPU itself.
std::set<vfio::PciAddress> gpus_of_group(const ScannedNode& node, const vfio::PciAddress& gpu) {
  std::set<vfio::PciAddress> out = {gpu};
  const vfio::PciFunction* function = node.inventory.find(gpu);
  if (function == nullptr) return out;  // unplugged
  for (const vfio::PciAddress& other : node.inventory.group_of(*function))
    if (node.vgpus.find(other) != nullptr) out.insert(other);
  return out;
}

std::set<vfio::PciAddress> claimed_groups(const ScannedNode& node, const AllocationFacts& facts) {
  std::set<vfio::PciAddress> out;
  for (const vfio::PciAddress& gpu : facts.claimed) out.merge(gpus_of_group(node, gpu));
  return out;
}

/// The obstacles of a whole IOMMU group to DRA, without the plugin's answer.
GpuCondition obstacles_of(const ScannedNode& node, const AllocationFacts& facts,
                          const std::set<vfio::PciAddress>& group) {
  GpuCondition out;
  for (const vfio::PciAddress& address : group) {
    if (const auto use = facts.use.find(address); use != facts.use.end()) {
      for (const std::string& reason : use->second.reasons)
        if (std::ranges::find(out.reasons, reason) == out.reasons.end()) out.reasons.push_back(reason);
      for (const vfio::DeviceUser& user : use->second.users)
        if (std::ranges::find(out.users, user) == out.users.end()) out.users.push_back(user);
    }
    const mdev::VgpuGpu* gpu = node.vgpus.find(address);
    if (gpu == nullptr || gpu->devices.empty()) continue;
    out.reasons.push_back(fmt::format("{} has {} that no claim made", address.text(),
                                      gpu->devices.size() == 1 ? "a vGPU" : "vGPUs"));
    out.hint = fmt::format(
        "`ferry vgpu delete --device {}` removes unused ones that Ferry made, and with --foreign all",
        address.text());
  }
  if (!out.users.empty()) out.hint = out.users.front().remedy();
  if (!out.reasons.empty()) out.state = api::GpuState::blocked;
  return out;
}

}  // namespace

std::set<vfio::PciAddress> on_the_way_to_dra(const ScannedNode& node, const AllocationFacts& facts) {
  const std::set<vfio::PciAddress> claimed = claimed_groups(node, facts);
  std::set<vfio::PciAddress> out;
  for (const auto& [gpu, allow] : facts.for_dra)
    if (!facts.published.contains(gpu) && !claimed.contains(gpu)) out.insert(gpu);
  return out;
}

std::set<vfio::PciAddress> kept_by_claims(const ScannedNode& node, const AllocationFacts& facts) {
  std::set<vfio::PciAddress> out = claimed_groups(node, facts);
  std::erase_if(out, [&](const vfio::PciAddress& gpu) { return facts.for_dra.contains(gpu); });
  return out;
}

std::vector<api::UnavailableDevice> unavailable_for_dra(const ScannedNode& node,
                                                        const std::set<vfio::PciAddress>& gpus) {
  std::vector<api::UnavailableDevice> out;
  std::set<std::string> listed;
  const auto add = [&](const std::string& id) {
    if (listed.insert(id).second) out.push_back({.id = id, .reason = kForDra});
  };
  for (const vfio::PciAddress& address : gpus) {
    if (node.inventory.find(address) == nullptr) continue;  // unplugged
    add(address.text());
    for (const vfio::PciAddress& member : vfio::concerned(node.inventory, {address})) add(member.text());
    const mdev::VgpuGpu* gpu = node.vgpus.find(address);
    if (gpu == nullptr) continue;
    for (const vfio::PciAddress& function : gpu->functions) add(function.text());
    for (const mdev::VgpuDevice& vgpu : gpu->devices) add(vgpu.id.text);
  }
  return out;
}

Allocations allocate(const ScannedNode& node, const AllocationFacts& facts) {
  Allocations out;
  out.dra = claimed_groups(node, facts);
  for (const auto& [gpu, allow] : facts.for_dra)
    if (facts.published.contains(gpu)) out.dra.insert(gpu);
  for (const vfio::PciAddress& gpu : kept_by_claims(node, facts)) {
    if (node.vgpus.find(gpu) == nullptr) continue;
    GpuCondition condition;
    condition.state = api::GpuState::blocked;
    condition.hint = kClaimsRemedy;
    if (const auto use = facts.use.find(gpu); use != facts.use.end()) {
      condition.reasons = use->second.reasons;
      condition.users = use->second.users;
    }
    if (condition.reasons.empty()) condition.reasons = {kClaimed};
    out.conditions.emplace(gpu, std::move(condition));
  }

  const std::set<vfio::PciAddress> candidates = on_the_way_to_dra(node, facts);
  for (const vfio::PciAddress& gpu : candidates) {
    GpuCondition condition = obstacles_of(node, facts, gpus_of_group(node, gpu));
    if (condition.state != api::GpuState::blocked) {
      if (!facts.plugin_is_asked) {
        out.dra.insert(gpu);
        continue;
      }
      condition = {.state = api::GpuState::pending, .reasons = {kWaitsForPlugin}, .hint = {}, .users = {}};
    }
    out.conditions.emplace(gpu, std::move(condition));
  }
  for (const auto& [gpu, reason] : facts.without_functions) {
    if (!out.dra.contains(gpu)) continue;
    out.conditions.emplace(
        gpu, GpuCondition{
                 .state = api::GpuState::failed, .reasons = {reason}, .hint = kFunctionsRemedy, .users = {}});
  }
  std::set<vfio::PciAddress> unavailable = out.dra;
  unavailable.insert(candidates.begin(), candidates.end());
  out.unavailable = unavailable_for_dra(node, unavailable);
  return out;
}

}  // namespace ferry::host
