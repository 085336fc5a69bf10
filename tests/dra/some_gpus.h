// SPDX-License-Identifier: Apache-2.0
// GPUs and nodes for the tests of DRA.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dra/slices/node_model.h"
#include "dra/slices/publication.h"
#include "tests/support/must.h"

namespace ferry::test {

constexpr std::uint64_t kGiB = 1ULL << 30U;

inline vfio::PciAddress at(std::string_view address) {
  return must(vfio::PciAddress::parse(address));
}

/// A type "NVIDIA L4-6Q" of a GPU whose vGPUs have one size.
inline dra::VgpuType vgpu_type(std::string id, const std::string& short_name, std::uint32_t gib,
                               std::uint32_t most) {
  return {.id = std::move(id),
          .name = "NVIDIA " + short_name,
          .short_name = short_name,
          .framebuffer_mib = gib * 1024,
          .most_per_gpu = most};
}

/// A type of a GPU with mixed sizes, at each multiple of its size.
inline dra::VgpuType placed_type(std::string id, const std::string& short_name, std::uint32_t gib,
                                 std::uint32_t units, std::uint32_t of_units) {
  dra::VgpuType out = vgpu_type(std::move(id), short_name, gib, of_units / units);
  out.size = units;
  for (std::uint32_t unit = 0; unit + units <= of_units; unit += units) out.placements.push_back(unit);
  return out;
}

/// 24 GiB, of which the driver keeps some: types of 6 and 12 GiB.
inline dra::Gpu l4(std::string_view address, std::uint32_t iommu_group) {
  return {.address = at(address),
          .iommu_group = iommu_group,
          .vendor = 0x10de,
          .device = 0x27b8,
          .product = "AD104GL [L4]",
          .memory_mib = 23034,
          .numa_node = 1,
          .pcie_root = "pci0000:3a",
          .framework = dra::VgpuFramework::vendor_vfio,
          .types = {vgpu_type("1150", "L4-6Q", 6, 4), vgpu_type("1152", "L4-12Q", 12, 2)}};
}

/// 16 GiB and 16 units: types of 2, 4 and 8 GiB, side by side.
inline dra::Gpu mixed(std::string_view address, std::uint32_t iommu_group) {
  return {
      .address = at(address),
      .iommu_group = iommu_group,
      .vendor = 0x10de,
      .device = 0x2236,
      .product = "GA102GL [A10]",
      .memory_mib = 16384,
      .pcie_root = "pci0000:60",
      .framework = dra::VgpuFramework::mdev,
      .mixed_sizes = true,
      .types = {placed_type("nvidia-590", "A10-2Q", 2, 2, 16), placed_type("nvidia-592", "A10-4Q", 4, 4, 16),
                placed_type("nvidia-594", "A10-8Q", 8, 8, 16)}};
}

/// In MIG mode, with two GPU instances of 5 GiB and one of 10 GiB: two types fill the small ones.
inline dra::Gpu in_instances(std::string_view address, std::uint32_t iommu_group) {
  dra::Gpu out{.address = at(address),
               .iommu_group = iommu_group,
               .vendor = 0x10de,
               .device = 0x20b0,
               .product = "GA100 [A100 SXM4 40GB]",
               .memory_mib = 40960,
               .pcie_root = "pci0000:c0",
               .whole = false,
               .framework = dra::VgpuFramework::vendor_vfio,
               .types = {vgpu_type("474", "A100X-1-5C", 5, 2), vgpu_type("475", "A100X-1-5CME", 5, 2),
                         vgpu_type("476", "A100X-2-10C", 10, 1)}};
  for (dra::VgpuType& type : out.types)
    type.fills = type.framebuffer_mib == 5120 ? "gi-1g.5gb" : "gi-2g.10gb";
  return out;
}

/// The server stores counters and taints.
inline dra::NodeModel node_with(std::vector<dra::Gpu> gpus) {
  return {.owner = {.node = "node7", .node_uid = "8a6e"},
          .gpus = std::move(gpus),
          .server = {.counters = true, .taints = true}};
}

/// The device, as a claim has it that was allocated from the slices that the node would publish now.
inline dra::HeldDevice held_device(const dra::NodeModel& node, std::string_view name, std::string claim) {
  const dra::Publication published = dra::publication_of(node);
  const dra::PublishedDevice* const device = published.device(name);
  if (device == nullptr) throw std::runtime_error("no device " + std::string(name));
  dra::HeldDevice out{
      .claim = std::move(claim), .asked = device->asked, .device = device->device, .counters = {}};
  out.device.taints.clear();
  if (!out.device.consumes.empty())
    if (const auto* const set = published.counter_set(out.device.consumes.front().set)) out.counters = *set;
  return out;
}

/// The API knows the claim, too.
inline void hold(dra::NodeModel& node, std::string_view name, std::string claim) {
  node.held.push_back(held_device(node, name, std::move(claim)));
  node.allocated.emplace(name);
}

inline std::vector<std::string> names_of(const dra::Publication& publication) {
  std::vector<std::string> out;
  out.reserve(publication.devices.size());
  for (const dra::PublishedDevice& published : publication.devices) out.push_back(published.device.name);
  return out;
}

}  // namespace ferry::test
