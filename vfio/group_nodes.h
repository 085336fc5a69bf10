// SPDX-License-Identifier: Apache-2.0
// What a group's node is called.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>

namespace ferry {

/// The names that the node of a group may have in /dev/vfio and in sys/class/vfio: its number, with
/// "noiommu-" before it where vfio took its members without an IOMMU. A group has one of them, or none: no
/// member on vfio, or a kernel that has no group nodes at all (CONFIG_VFIO_GROUP).
/// ABI: Documentation/driver-api/vfio.rst; drivers/vfio/group.c.
inline std::array<std::string, 2> group_node_names(std::uint32_t group) {
  std::string number = std::to_string(group);
  std::string without_iommu = "noiommu-" + number;
  return {std::move(number), std::move(without_iommu)};
}

}  // namespace ferry
