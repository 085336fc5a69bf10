// SPDX-License-Identifier: Apache-2.0
#include "vfio/pci/vm_nodes.h"

#include <algorithm>
#include <fcntl.h>
#include <filesystem>
#include <sys/stat.h>
#include <utility>

#include <fmt/compile.h>
#include <fmt/format.h>

#include "common/file_status.h"

namespace ferry::vfio {

std::vector<std::string> vm_nodes(const NodeIsThere& is_there, std::uint32_t group,
                                  std::span<const std::string> vfio_devices, GroupNode group_node) {
  std::vector<std::string> own;
  own.reserve(vfio_devices.size());
  for (const std::string& device : vfio_devices) own.push_back("/dev/vfio/devices/" + device);
  const bool own_nodes =
      !own.empty() && is_there(kIommufd) &&
      std::ranges::all_of(own, [&](const std::string& node) { return is_there(node.substr(1)); });
  const std::string path = fmt::format(FMT_COMPILE("/dev/vfio/{}"), group);
  const bool legacy =
      is_there("dev/vfio/vfio") && (group_node == GroupNode::is_there || is_there(path.substr(1)));

  std::vector<std::string> nodes;
  if (own_nodes) nodes = std::move(own);
  if (legacy) {
    nodes.emplace_back("/dev/vfio/vfio");
    nodes.push_back(path);
  }
  if (own_nodes) nodes.emplace_back("/dev/iommu");
  return nodes;
}

std::string missing_nodes(std::uint32_t group) {
  return fmt::format("/dev/vfio/vfio and /dev/vfio/{} are not both there", group);
}

std::optional<mode_t> node_mode(const HostFs& host, const std::string& node) {
  const auto fd = host.open(std::filesystem::path(node).relative_path(), O_PATH);
  const auto status = fd ? file_status(fd->get()) : std::nullopt;
  if (!status) return std::nullopt;
  return status->st_mode & (S_IRWXU | S_IRWXG | S_IRWXO);
}

}  // namespace ferry::vfio
