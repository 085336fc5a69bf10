// SPDX-License-Identifier: Apache-2.0
#include "kubevirt-plugin/discovery/device_nodes.h"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

namespace ferry::plugin {

std::string group_problem(std::uint32_t group, std::span<const GroupMember> members) {
  const auto in_the_way = std::ranges::find(members, false, &GroupMember::usable);
  if (in_the_way == members.end()) return {};
  return fmt::format("{} ({}) shares its IOMMU group {} and is not on a vfio driver",
                     in_the_way->address.text(), in_the_way->driver, group);
}

std::vector<std::string> vfio_nodes(const NodeIsThere& is_there, std::uint32_t group,
                                    std::span<const GroupMember> members, GroupNode group_node) {
  std::vector<std::string> devices;
  for (const auto& member : members)
    if (!member.vfio_device.empty()) devices.push_back(member.vfio_device);
  return vfio::vm_nodes(is_there, group, devices, group_node);
}

KataKey kata_key(const NodeIsThere& is_there, std::uint32_t group,
                 std::span<const std::string> vfio_devices) {
  constexpr std::string_view kPrefix = "vfio";
  if (is_there(kIommufd) && !vfio_devices.empty()) {
    const std::string node = "/dev/vfio/devices/" + vfio_devices.front();
    KataKey key{.id = vfio_devices.front().substr(kPrefix.size()), .nodes = {}, .missing = {}};
    if (is_there(node.substr(1))) {
      key.nodes = {node};
    } else {
      key.missing = node + " is not there";
    }
    return key;
  }
  KataKey key{.id = std::to_string(group), .nodes = vfio_nodes(is_there, group, {}), .missing = {}};
  if (key.nodes.empty()) key.missing = missing_nodes(group);
  return key;
}

}  // namespace ferry::plugin
