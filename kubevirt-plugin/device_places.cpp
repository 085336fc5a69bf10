// SPDX-License-Identifier: Apache-2.0
#include "kubevirt-plugin/device_places.h"

#include <fcntl.h>

#include <fmt/format.h>

namespace ferry {
namespace {

bool has_config_space(const OfferedDevice& offered) {
  return offered.kind == DeviceKind::pci_function || offered.kind == DeviceKind::kata_function;
}

}  // namespace

std::filesystem::path sysfs_path_of(const OfferedDevice& offered) {
  const bool is_mediated = offered.kind == DeviceKind::mediated_device;
  return std::filesystem::path(is_mediated ? "sys/bus/mdev/devices" : "sys/bus/pci/devices") /
         offered.host_name();
}

Result<DevicePlace> DevicePlace::open(const HostFs& host, const OfferedDevice& offered) {
  auto device = HostDirectory::open(host, sysfs_path_of(offered));
  if (!device) return fail(std::move(device).error());
  std::optional<UniqueFd> config;
  if (has_config_space(offered))
    if (auto opened = device->open("config", O_RDONLY)) config = std::move(*opened);
  return DevicePlace{.device = std::move(*device),
                     .config = std::move(config),
                     .group = HostDirectory::open(
                         host, fmt::format("sys/kernel/iommu_groups/{}/devices", offered.iommu_group))};
}

std::shared_ptr<const DevicePlace> DevicePlaces::kept(const OfferedDevice& offered) const {
  const std::scoped_lock lock(mutex_);
  const auto found = places_.find({offered.host_name(), offered.iommu_group});
  return found == places_.end() ? nullptr : found->second;
}

Result<std::shared_ptr<const DevicePlace>> DevicePlaces::open(const HostFs& host,
                                                              const OfferedDevice& offered) {
  auto opened = DevicePlace::open(host, offered);
  if (!opened) return fail(std::move(opened).error());
  auto place = std::make_shared<const DevicePlace>(std::move(*opened));
  const std::scoped_lock lock(mutex_);
  if (places_.size() >= kMost) places_.clear();
  places_.insert_or_assign({offered.host_name(), offered.iommu_group}, place);
  return place;
}

}  // namespace ferry
