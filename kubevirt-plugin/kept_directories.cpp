// SPDX-License-Identifier: Apache-2.0
#include "kubevirt-plugin/kept_directories.h"

#include <algorithm>
#include <fcntl.h>

#include <fmt/format.h>

namespace ferry {
namespace {

bool are_one(const std::optional<HostDirectory>& a, const std::optional<HostDirectory>& b) {
  return a && b ? a->is_same(*b) : !a && !b;
}

}  // namespace

bool is_function_itself(const OfferedDevice& offered) {
  return offered.kind == DeviceKind::pci_function || offered.kind == DeviceKind::kata_function;
}

std::filesystem::path sysfs_path_of(const OfferedDevice& offered) {
  const bool is_mediated = offered.kind == DeviceKind::mediated_device;
  return std::filesystem::path(is_mediated ? "sys/bus/mdev/devices" : "sys/bus/pci/devices") /
         offered.host_name();
}

std::filesystem::path group_path_of(const OfferedDevice& offered) {
  return fmt::format("sys/kernel/iommu_groups/{}/devices", offered.iommu_group);
}

NodeDirectories::NodeDirectories(const HostFs& host) : host_(host) {
  for (auto& [path, directory] : kept_)
    if (auto opened = HostDirectory::open(host, path)) directory = std::move(*opened);
}

bool NodeDirectories::exists(const std::string& path) const {
  const auto slash = std::min(path.rfind('/'), path.size());
  const auto parent = std::string_view(path).substr(0, slash);
  const auto kept = std::ranges::find(kept_, parent, &Kept::path);
  if (kept != kept_.end() && kept->directory)
    if (const auto there = kept->directory->has(path.c_str() + slash + 1)) return *there;
  return host_.exists(path);
}

bool NodeDirectories::are_same(const NodeDirectories& other) const {
  return std::ranges::equal(kept_, other.kept_, are_one, &Kept::directory, &Kept::directory);
}

Result<DeviceDirectories> DeviceDirectories::open(const HostFs& host, const OfferedDevice& offered,
                                                  std::shared_ptr<const NodeDirectories> nodes) {
  auto own = HostDirectory::open(host, sysfs_path_of(offered));
  if (!own) return fail(std::move(own).error());
  DeviceDirectories opened{.own = std::move(*own), .nodes = std::move(nodes)};
  if (is_function_itself(offered))
    if (auto config = opened.own.open("config", O_RDONLY)) opened.config = std::move(*config);
  if (offered.kind != DeviceKind::mediated_device)
    if (auto group = HostDirectory::open(host, group_path_of(offered))) opened.group = std::move(*group);
  return opened;
}

bool DeviceDirectories::are_same(const DeviceDirectories& other) const {
  return own.is_same(other.own) && are_one(group, other.group) && nodes->are_same(*other.nodes);
}

std::shared_ptr<const DeviceDirectories> KeptDirectories::kept(const OfferedDevice& offered) const {
  const std::scoped_lock lock(mutex_);
  const auto found = devices_.find({offered.host_name(), offered.iommu_group});
  return found == devices_.end() ? nullptr : found->second;
}

std::shared_ptr<const NodeDirectories> KeptDirectories::nodes() const {
  const std::scoped_lock lock(mutex_);
  return nodes_.lock();
}

std::shared_ptr<const NodeDirectories> KeptDirectories::open_nodes(const HostFs& host) {
  auto now = std::make_shared<const NodeDirectories>(host);
  const std::scoped_lock lock(mutex_);
  if (auto kept = nodes_.lock(); kept != nullptr && kept->are_same(*now)) return kept;
  nodes_ = now;
  return now;
}

Result<std::shared_ptr<const DeviceDirectories>> KeptDirectories::open(const HostFs& host,
                                                                       const OfferedDevice& offered) {
  const Key key(offered.host_name(), offered.iommu_group);
  auto opened = DeviceDirectories::open(host, offered, open_nodes(host));
  Devices let_go;  // to close them takes as long as to open them: not under the lock
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
