// SPDX-License-Identifier: Apache-2.0
// The device nodes by which a VM gets devices of an IOMMU group.
// ABI: Documentation/driver-api/vfio.rst (/dev/vfio/GROUP; /dev/vfio/devices/vfioN since Linux 6.6).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <sys/types.h>
#include <vector>

#include "hostfs/host_fs.h"

namespace ferry::vfio {

/// This entry exists as long as /dev/iommu does; the plugin's container has only the folder /dev/vfio.
/// Source: iommu_misc_dev in drivers/iommu/iommufd/main.c, a misc device of that name and node.
inline constexpr const char* kIommufd = "sys/class/misc/iommu";

/// True if a file exists, by its path below the host's root: "dev/vfio/vfio".
using NodeIsThere = std::function<bool(const std::string&)>;

/// is_there: the group's own node was just opened, so it exists.
enum class GroupNode : std::uint8_t { unknown, is_there };

/// Absolute paths in the order of NVIDIA's plugin: the devices' own nodes, /dev/vfio/vfio, the group's node,
/// /dev/iommu. The legacy pair is listed only if complete, and so are the own nodes with /dev/iommu. Empty:
/// neither is complete. `vfio_devices`: "vfio3", of the members that have such an entry.
std::vector<std::string> vm_nodes(const NodeIsThere& is_there, std::uint32_t group,
                                  std::span<const std::string> vfio_devices,
                                  GroupNode group_node = GroupNode::unknown);

/// A sentence about the missing nodes, for an empty vm_nodes().
std::string missing_nodes(std::uint32_t group);

/// The permission bits of a node ("/dev/vfio/8") on the host; absent: they cannot be read.
std::optional<mode_t> node_mode(const HostFs& host, const std::string& node);

}  // namespace ferry::vfio
