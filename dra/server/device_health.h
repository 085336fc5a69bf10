// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "dra/slices/node_model.h"
#include "dra/slices/publication.h"

namespace ferry::dra {

/// The health of a published device, which the kubelet shows in the status of the pods that have it.
struct DeviceHealth {
  enum class State { healthy, unhealthy };
  std::string pool;
  std::string device;
  State state = State::unhealthy;
  std::string message = {};  ///< the reason; empty: healthy
  bool operator==(const DeviceHealth&) const = default;
};

/// The health of all devices of the publication. A device whose GPU is gone is unhealthy. A whole device is
/// unhealthy if one of the GPUs of its IOMMU group is.
std::vector<DeviceHealth> device_health(const NodeModel& node, const Publication& publication);

}  // namespace ferry::dra
