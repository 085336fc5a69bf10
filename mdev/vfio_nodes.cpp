// SPDX-License-Identifier: Apache-2.0
#include "mdev/vfio_nodes.h"

#include <string>

#include <fmt/format.h>

#include "common/text/text.h"
#include "hostfs/check_reading.h"

namespace ferry::mdev {
namespace {

Result<> add_node(const HostFs& host, const std::filesystem::path& directory, std::string name,
                  VgpuDevice& device) {
  auto text = host.read_attribute(directory / "dev");
  if (!text && is_gone(text.error())) return {};
  if (!text) return fail(std::move(text).error());
  const auto number = vfio::parse_device_number(*text);
  if (!number) {
    return fail(Errc::malformed_host,
                fmt::format("/{}: '{}' is not MAJOR:MINOR", (directory / "dev").string(), *text));
  }
  device.nodes.push_back({.name = std::move(name), .number = *number});
  return {};
}

}  // namespace

Result<> read_vfio_nodes(const HostFs& host, const std::filesystem::path& path, VgpuDevice& device) {
  if (device.iommu_group) {
    for (const std::string& name : vfio::group_node_names(*device.iommu_group)) {
      const auto directory = std::filesystem::path("sys/class/vfio") / name;
      if (auto added = add_node(host, directory, "/dev/vfio/" + name, device); !added) return added;
    }
  }
  const auto own = names_in(host, path / "vfio-dev");
  if (!own) return fail(own.error());
  for (const std::string& name : *own) {
    const auto directory = path / "vfio-dev" / name;
    if (auto added = add_node(host, directory, "/dev/vfio/devices/" + name, device); !added) return added;
  }
  return {};
}

void read_nvidia_attributes(const HostFs& host, const std::filesystem::path& path, VgpuDevice& device) {
  const auto number = [&](const char* name) {
    return whole_number(trimmed(host.read_attribute(path / "nvidia" / name).value_or("")));
  };
  device.gpu_instance = number("gpu_instance_id");
  device.placement = number("placement_id");
  if (const auto params = host.read_attribute(path / "nvidia/vgpu_params"))
    device.params = std::string(trimmed(*params));
}

}  // namespace ferry::mdev
