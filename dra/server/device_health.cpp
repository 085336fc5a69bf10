// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "dra/names.h"
#include "dra/server/dra_server.h"

namespace ferry::dra {
namespace {

/// nullptr: no claim has the device.
const HeldDevice* held_device(const NodeModel& node, const Device& device) {
  const auto found = std::ranges::find_if(
      node.held, [&](const HeldDevice& held) { return held.device.name == device.name; });
  return found == node.held.end() ? nullptr : &*found;
}

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

std::vector<DeviceHealth> device_health(const NodeModel& node, const Publication& publication) {
  const std::string pool = pool_name(node.owner.node);
  std::vector<DeviceHealth> out;
  for (const PublishedDevice& published : publication.devices) {
    DeviceHealth health{.pool = pool, .device = published.device.name};
    const Gpu* const first = node.find(published.gpu);
    const HeldDevice* const held = held_device(node, published.device);
    if (first == nullptr) {
      health.message = fmt::format("GPU {} is gone", published.gpu.text());
    } else if (held != nullptr &&
               std::ranges::find(first->lost_claims, held->claim) != first->lost_claims.end()) {
      health.message = "its claim has lost a device of this GPU: another program has taken it away";
    } else if (const Gpu* const gpu = unhealthy_gpu(node, *first, published.device, held != nullptr)) {
      health.message = fmt::format("GPU {}: {}", gpu->address.text(), gpu->obstacle());
    } else {
      health.state = DeviceHealth::State::healthy;
    }
    out.push_back(std::move(health));
  }
  return out;
}

}  // namespace ferry::dra
