// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "dra/names.h"
#include "dra/server/dra_server.h"

namespace ferry::dra {
namespace {

/// The GPU that makes the device unhealthy; nullptr: it is healthy. `first`: the device's own GPU. A vGPU
/// that a claim has stays healthy if its GPU makes no further ones.
const Gpu* unhealthy_gpu(const NodeModel& node, const Gpu& first, const Device& device, bool is_held) {
  if (!first.is_ready(is_held || is_whole(device))) return &first;
  if (!is_whole(device) || !first.iommu_group) return nullptr;
  const auto found = std::ranges::find_if(node.gpus, [&](const Gpu& gpu) {
    return gpu.iommu_group == first.iommu_group && gpu.health != GpuHealth::ready;
  });
  return found == node.gpus.end() ? nullptr : &*found;
}

}  // namespace

std::string loss_of(const NodeModel& node, const HeldDevice& held) {
  const Gpu* const first = node.find(held.asked.gpu);
  if (first == nullptr) return fmt::format("GPU {} is gone", held.asked.gpu.text());
  if (is_whole(held.device) && !first->unplugged.empty())
    return fmt::format("GPU {} of its IOMMU group is gone", first->unplugged.front());
  if (std::ranges::find(first->lost_claims, held.claim) == first->lost_claims.end()) return {};
  return fmt::format("another program has taken away its device of GPU {}", held.asked.gpu.text());
}

std::vector<DeviceHealth> device_health(const NodeModel& node, const Publication& publication) {
  const std::string pool = pool_name(node.owner.node);
  std::vector<DeviceHealth> out;
  for (const PublishedDevice& published : publication.devices) {
    DeviceHealth health{.pool = pool, .device = published.device.name};
    const Gpu* const first = node.find(published.asked.gpu);
    const auto held = std::ranges::find_if(
        node.held, [&](const HeldDevice& one) { return one.device.name == published.device.name; });
    const bool is_held = held != node.held.end();
    std::string loss = is_held ? loss_of(node, *held) : std::string();
    if (!loss.empty()) {
      health.message = std::move(loss);
    } else if (first == nullptr) {
      health.message = fmt::format("GPU {} is gone", published.asked.gpu.text());
    } else if (const Gpu* const gpu = unhealthy_gpu(node, *first, published.device, is_held)) {
      health.message = fmt::format("GPU {}: {}", gpu->address.text(), gpu->obstacle());
    }
    out.push_back(std::move(health));
  }
  return out;
}

}  // namespace ferry::dra
