// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ferry {

/// Devices of one resource that the kubelet has allocated to one container. The container may not have
/// started yet, since the kubelet allocates devices when it admits the pod.
struct PodDevice {
  std::string name_space;  ///< the pod's
  std::string pod;
  std::string container;
  /// "nvidia.com/GH100_H100_SXM5_80GB". For a device of a resource claim: the kind of its CDI name
  /// ("nvidia.com/gpu"), or its driver ("gpu.nvidia.com").
  std::string resource;
  /// The plugin's names for the devices: PCI addresses, UUIDs, numbers, anything.
  std::vector<std::string> ids;
  /// NUMA nodes of all devices together, ascending. Empty: the kubelet does not report them.
  std::vector<std::int64_t> numa_nodes;

  bool operator==(const PodDevice&) const = default;
};

}  // namespace ferry
