// SPDX-License-Identifier: Apache-2.0
// The viability of IOMMU groups, and the device nodes by which a VM gets one.
// ABI: Documentation/driver-api/vfio.rst (viability, /dev/vfio/GROUP; /dev/vfio/devices/vfioN since Linux
// 6.6).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "vfio/pci/pci_address.h"
#include "vfio/pci/vm_nodes.h"

namespace ferry::plugin {

/// The facts that matter about one function of a group.
struct GroupMember {
  vfio::PciAddress address;
  std::string driver;            ///< empty: none bound
  bool usable = false;           ///< its driver does not keep the group from a VM: blocks_viability()
  std::string vfio_device = {};  ///< "vfio3"; empty: none, or another vendor's, which is given by its group
};

/// The reason why the group cannot be opened, with the first function in the way; empty: it can.
std::string group_problem(std::uint32_t group, std::span<const GroupMember> members);

using vfio::GroupNode;
using vfio::kIommufd;
using vfio::missing_nodes;
using vfio::NodeIsThere;

/// vfio::vm_nodes() of a group with these members.
std::vector<std::string> vfio_nodes(const NodeIsThere& is_there, std::uint32_t group,
                                    std::span<const GroupMember> members,
                                    GroupNode group_node = GroupNode::unknown);

/// Kata's ID and nodes of a function.
struct KataKey {
  /// N of its vfioN if the host has iommufd, else its group's number, in decimal.
  std::string id;
  /// vfioN's node alone, or /dev/vfio/vfio and the group's node. Kata cannot take both. Empty: they do not
  /// exist.
  std::vector<std::string> nodes;
  std::string missing;  ///< a sentence about the missing nodes; empty: `nodes` is complete
};
/// `vfio_devices`: the names in the function's vfio-dev.
KataKey kata_key(const NodeIsThere& is_there, std::uint32_t group, std::span<const std::string> vfio_devices);

}  // namespace ferry::plugin
