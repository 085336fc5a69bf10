// SPDX-License-Identifier: Apache-2.0
// Whether an IOMMU group can be given to a virtual machine, and through which device nodes.
// ABI: Documentation/driver-api/vfio.rst (viability, /dev/vfio/GROUP; /dev/vfio/devices/vfioN since
// Linux 6.6).
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "vfio/pci_address.h"

namespace ferry {

/// What counts of one function of a group.
struct GroupMember {
  PciAddress address;
  std::string driver;       ///< empty: none bound
  bool usable = false;      ///< its driver does not keep the group from a VM: blocks_viability()
  std::string vfio_device;  ///< "vfio3"; empty: none, or another vendor's, which goes with the group alone
};

/// Why the group cannot be opened, naming the first function in the way; empty when it can.
std::string group_problem(std::uint32_t group, std::span<const GroupMember> members);

/// Whether the group's own node is known to be there: it has just been opened.
enum class GroupNode : std::uint8_t { unknown, is_there };

/// In sysfs as long as the node /dev/iommu is in /dev, of which the plugin's container has the folder
/// /dev/vfio alone. Source: iommu_misc_dev in drivers/iommu/iommufd/main.c, a misc device of that name and
/// node.
inline constexpr const char* kIommufd = "sys/class/misc/iommu";

/// Whether a file is there, by its path below the host's root: "dev/vfio/vfio".
using NodeIsThere = std::function<bool(const std::string&)>;

/// Absolute paths in the order that NVIDIA's plugin has: the functions' own nodes, /dev/vfio/vfio, the
/// group's, /dev/iommu. Of the legacy pair and of the own nodes with /dev/iommu only what is there whole.
/// Empty: neither.
std::vector<std::string> vfio_nodes(const NodeIsThere& is_there, std::uint32_t group,
                                    std::span<const GroupMember> members,
                                    GroupNode group_node = GroupNode::unknown);

/// What Kata knows a function by.
struct KataKey {
  /// N of its vfioN where there is iommufd, else its group: in decimal.
  std::string id;
  /// vfioN's node alone, or /dev/vfio/vfio and the group's: never both, which Kata cannot take. Empty: they
  /// are not there.
  std::vector<std::string> nodes;
  std::string missing;  ///< then: which are not, in words; else empty
};
/// `vfio_devices`: the names in the function's vfio-dev.
KataKey kata_key(const NodeIsThere& is_there, std::uint32_t group, std::span<const std::string> vfio_devices);

/// Which node is missed when vfio_nodes() is empty.
std::string missing_nodes(std::uint32_t group);

}  // namespace ferry
