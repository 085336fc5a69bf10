// SPDX-License-Identifier: Apache-2.0
#include "mdev/vfio_nodes.h"

#include <string>

#include <fmt/format.h>

#include "mdev/text_parts.h"
#include "vfio/group_nodes.h"

namespace ferry {
namespace {

Result<DeviceNumber> read_device_number(const HostFs& host, const std::filesystem::path& path) {
  auto text = host.read_attribute(path);
  if (!text) return fail(std::move(text).error());
  const auto colon = text->find(':');
  const auto major = number_at_start(*text);
  const auto minor =
      colon == std::string::npos ? std::nullopt : number_at_start(std::string_view(*text).substr(colon + 1));
  if (!major || !minor) {
    return fail(Errc::malformed_host, fmt::format("/{}: '{}' is not MAJOR:MINOR", path.string(), *text));
  }
  return DeviceNumber{.major = *major, .minor = *minor};
}

}  // namespace

std::vector<DeviceNode> read_vfio_nodes(const HostFs& host, const std::filesystem::path& device,
                                        std::optional<std::uint32_t> group) {
  std::vector<DeviceNode> nodes;
  if (group) {
    for (const std::string& name : group_node_names(*group)) {
      if (auto number = read_device_number(host, std::filesystem::path("sys/class/vfio") / name / "dev")) {
        nodes.push_back({.name = "/dev/vfio/" + name, .number = *number});
      }
    }
  }
  for (const std::string& name : host.list(device / "vfio-dev").value_or(std::vector<std::string>{})) {
    if (auto number = read_device_number(host, device / "vfio-dev" / name / "dev")) {
      nodes.push_back({.name = "/dev/vfio/devices/" + name, .number = *number});
    }
  }
  return nodes;
}

}  // namespace ferry
