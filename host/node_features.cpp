// SPDX-License-Identifier: Apache-2.0
#include "host/node_features.h"

#include <algorithm>
#include <set>

#include "mdev/vgpu.h"

namespace ferry {
namespace {

constexpr const char* kMachine = "sys/class/dmi/id/product_name";

std::string iommu_of(const Inventory& inventory) {
  if (inventory.unsafe_noiommu) return "unsafe_noiommu";
  return inventory.has_iommu() ? "on" : "off";
}

std::optional<std::uint32_t> largest_group(const ScannedNode& node) {
  std::optional<std::uint32_t> out;
  for (const VgpuGpu& gpu : node.vgpus.gpus) {
    if (!gpu.function.iommu_group) continue;
    const auto members = node.inventory.group_of(gpu.function).size();
    out = std::max(out.value_or(0), static_cast<std::uint32_t>(members));
  }
  return out;
}

/// Maximum instances by the type's short name; absent values: the driver does not say.
std::map<std::string, std::optional<std::uint32_t>> maxima_of(const VgpuGpu& gpu) {
  std::map<std::string, std::optional<std::uint32_t>> out;
  const auto listed = types_of(gpu);
  for (const auto* types : {&listed, &gpu.unlisted})
    for (const VgpuType& type : *types)
      if (type.name != type.id) out.emplace(type.short_name, type.max_instances);
  return out;
}

std::map<std::string, std::uint32_t> vgpu_types(const VgpuInventory& vgpus) {
  std::map<std::string, std::uint32_t> out;
  std::set<std::string> unknown;
  for (const VgpuGpu& gpu : vgpus.gpus) {
    const auto maxima = maxima_of(gpu);
    const bool unread =
        std::ranges::any_of(gpu.parents, [](const VgpuParent& parent) { return parent.problem.has_value(); });
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

NodeFeatures features_of(const ScannedNode& node) {
  return {.iommu = iommu_of(node.inventory),
          .largest_group = largest_group(node),
          .machine = node.machine,
          .vgpu_types = vgpu_types(node.vgpus)};
}

}  // namespace ferry
