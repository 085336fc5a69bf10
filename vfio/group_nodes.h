// SPDX-License-Identifier: Apache-2.0
// Names of an IOMMU group's device node.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>

namespace ferry {

/// The names that a group's node may have in /dev/vfio and in sys/class/vfio: the group's number, with
/// "noiommu-" before it if vfio took the members without an IOMMU. A group has one node at most. It has none
/// if no member is on vfio, or if the kernel has no group nodes (CONFIG_VFIO_GROUP).
/// ABI: Documentation/driver-api/vfio.rst; drivers/vfio/group.c.
inline std::array<std::string, 2> group_node_names(std::uint32_t group) {
  std::string number = std::to_string(group);
  std::string without_iommu = "noiommu-" + number;
  return {std::move(number), std::move(without_iommu)};
}

}  // namespace ferry
