// SPDX-License-Identifier: Apache-2.0
#include "kubevirt-plugin/kept_directories.h"

#include <fcntl.h>

#include <fmt/format.h>

namespace ferry {
namespace {

bool is_function_itself(const OfferedDevice& offered) {
  return offered.kind == DeviceKind::pci_function || offered.kind == DeviceKind::kata_function;
}

}  // namespace

std::filesystem::path sysfs_path_of(const OfferedDevice& offered) {
  const bool is_mediated = offered.kind == DeviceKind::mediated_device;
  return std::filesystem::path(is_mediated ? "sys/bus/mdev/devices" : "sys/bus/pci/devices") /
         offered.host_name();
}

std::filesystem::path group_path_of(const OfferedDevice& offered) {
  return fmt::format("sys/kernel/iommu_groups/{}/devices", offered.iommu_group);
}

Result<DeviceDirectories> DeviceDirectories::open(const HostFs& host, const OfferedDevice& offered) {
  auto own = HostDirectory::open(host, sysfs_path_of(offered));
  if (!own) return fail(std::move(own).error());
  DeviceDirectories opened{.own = std::move(*own)};
  if (is_function_itself(offered))
    if (auto config = opened.own.open("config", O_RDONLY)) opened.config = std::move(*config);
  if (offered.kind != DeviceKind::mediated_device)
    if (auto group = HostDirectory::open(host, group_path_of(offered))) opened.group = std::move(*group);
  return opened;
}

bool DeviceDirectories::are_same(const DeviceDirectories& other) const {
  const bool same_group = group && other.group ? group->is_same(*other.group) : !group && !other.group;
  return own.is_same(other.own) && same_group;
}

std::shared_ptr<const DeviceDirectories> KeptDirectories::kept(const OfferedDevice& offered) const {
  const std::scoped_lock lock(mutex_);
  const auto found = devices_.find({offered.host_name(), offered.iommu_group});
  return found == devices_.end() ? nullptr : found->second;
}

Result<std::shared_ptr<const DeviceDirectories>> KeptDirectories::open(const HostFs& host,
                                                                       const OfferedDevice& offered) {
  const Key key(offered.host_name(), offered.iommu_group);
  auto opened = DeviceDirectories::open(host, offered);
  Devices let_go;  // closing takes as long as opening, so it happens after the lock
  const std::scoped_lock lock(mutex_);
  if (const auto former = devices_.find(key); former != devices_.end())
    let_go.insert(devices_.extract(former));
  if (!opened) return fail(std::move(opened).error());
  if (devices_.size() >= kMost) devices_.swap(let_go);
  auto now = std::make_shared<const DeviceDirectories>(std::move(*opened));
  devices_.emplace(key, now);
  return now;
}

}  // namespace ferry
