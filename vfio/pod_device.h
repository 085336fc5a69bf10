// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ferry {

/// Devices of one resource that the kubelet has given to one container. The container may not have started
/// yet: it is given its devices when its pod is admitted.
struct PodDevice {
  std::string name_space;  ///< the pod's
  std::string pod;
  std::string container;
  /// "nvidia.com/GH100_H100_SXM5_80GB". For a device of a resource claim: the kind of its CDI name
  /// ("nvidia.com/gpu"), or its driver ("gpu.nvidia.com").
  std::string resource;
  /// As the plugin that offers the resource calls them: PCI addresses, UUIDs, numbers, anything.
  std::vector<std::string> ids;
  /// Of all of them together, ascending. Empty: the kubelet does not say.
  std::vector<std::int64_t> numa_nodes;

  bool operator==(const PodDevice&) const = default;
};

}  // namespace ferry
