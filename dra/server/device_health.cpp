// SPDX-License-Identifier: Apache-2.0
#include "dra/server/device_health.h"

#include <utility>

#include <fmt/format.h>

#include "dra/names.h"

namespace ferry::dra {
namespace {

using State = DeviceHealth::State;

/// The worse of two: a greater number is worse.
int rank(State state) {
  switch (state) {
    case State::healthy:
      return 0;
    case State::unknown:
      return 1;
    case State::unhealthy:
      return 2;
  }
  return 2;
}

State state_of(const Gpu& gpu) {
  switch (gpu.health) {
    case GpuHealth::ready:
      return State::healthy;
    case GpuHealth::preparing:
      return State::unknown;
    case GpuHealth::unhealthy:
      return State::unhealthy;
  }
  return State::unknown;
}

}  // namespace

std::vector<DeviceHealth> device_health(const NodeModel& node, const Publication& publication) {
  const std::string pool = pool_name(node.owner.node);
  std::vector<DeviceHealth> out;
  for (const PublishedDevice& published : publication.devices) {
    DeviceHealth health{.pool = pool, .device = published.device.name};
    const Gpu* const first = node.find(published.gpu);
    if (first == nullptr) {
      health.state = State::unhealthy;
      health.message = fmt::format("GPU {} is gone", published.gpu.text());
      out.push_back(std::move(health));
      continue;
    }
    health.state = state_of(*first);
    const Gpu* worst = first;
    for (const Gpu& gpu : node.gpus) {
      const bool is_part = is_whole(published.device) && gpu.iommu_group == first->iommu_group;
      if (!is_part || rank(state_of(gpu)) <= rank(health.state)) continue;
      health.state = state_of(gpu);
      worst = &gpu;
    }
    if (health.state != State::healthy)
      health.message = fmt::format("GPU {}: {}", worst->address.text(), worst->reason);
    out.push_back(std::move(health));
  }
  return out;
}

}  // namespace ferry::dra
