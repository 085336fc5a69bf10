// SPDX-License-Identifier: Apache-2.0
#include "mdev/vfio_nodes.h"

#include <string>

#include <fmt/format.h>

#include "common/text/text.h"
#include "vfio/use_probe.h"

namespace ferry::mdev {
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

Result<> add_node(const HostFs& host, const std::filesystem::path& directory, std::string name,
                  std::vector<vfio::DeviceNode>& into) {
  auto number = read_device_number(host, directory / "dev");
  if (!number && is_gone(number.error())) return {};
  if (!number) return fail(std::move(number).error());
  into.push_back({.name = std::move(name), .number = *number});
  return {};
}

}  // namespace

Result<std::vector<vfio::DeviceNode>> read_vfio_nodes(const HostFs& host, const std::filesystem::path& device,
                                                      std::optional<std::uint32_t> group) {
  std::vector<vfio::DeviceNode> nodes;
  if (group) {
    for (const std::string& name : vfio::group_node_names(*group)) {
      auto added = add_node(host, std::filesystem::path("sys/class/vfio") / name, "/dev/vfio/" + name, nodes);
      if (!added) return fail(std::move(added).error());
    }
  }
  const auto own = host.list(device / "vfio-dev");
  if (!own && !is_gone(own.error())) return fail(Error(own.error()));
  for (const std::string& name : own.value_or(std::vector<std::string>{})) {
    auto added = add_node(host, device / "vfio-dev" / name, "/dev/vfio/devices/" + name, nodes);
    if (!added) return fail(std::move(added).error());
  }
  return nodes;
}

}  // namespace ferry::mdev
