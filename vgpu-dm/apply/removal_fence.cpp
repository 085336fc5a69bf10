// SPDX-License-Identifier: Apache-2.0
#include "vgpu-dm/apply/removal_fence.h"

#include <algorithm>
#include <fcntl.h>
#include <utility>

#include <fmt/format.h>

#include "vfio/pci/group_nodes.h"

namespace ferry::vgpu {
namespace {

bool driver_refuses(const VgpuStep& removal) {
  return removal.framework == mdev::VgpuFramework::vendor_vfio;
}

}  // namespace

RemovalFence::RemovalFence(const HostFs& host)
    : open_([&host](const std::filesystem::path& relative) { return host.open(relative, O_RDWR); }) {}

Result<> RemovalFence::close(const mdev::VgpuGpu& gpu, std::span<const VgpuStep> removals) {
  for (const VgpuStep& step : removals) {
    const auto device = std::ranges::find(gpu.devices, step.id, &mdev::VgpuDevice::id);
    if (driver_refuses(step) || device == gpu.devices.end() || !device->iommu_group) continue;
    for (const std::string& name : vfio::group_node_names(*device->iommu_group)) {
      auto node = open_("dev/vfio/" + name);
      if (node) {
        held_.emplace(step.id.text, std::move(*node));
        break;
      }
      if (node.error().code != std::errc::device_or_resource_busy) continue;
      open();
      return fail(Errc::refused,
                  fmt::format("{}: vGPU {} ({}) would have to go: somebody has opened /dev/vfio/{} since its "
                              "users were looked for",
                              gpu.label(), step.id.text, step.short_name, name),
                  "stop the VM first");
    }
  }
  return {};
}

bool RemovalFence::leaves_open(const VgpuStep& removal) const {
  return !driver_refuses(removal) && !held_.contains(removal.id.text);
}

}  // namespace ferry::vgpu
