// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "common/host_directory.h"
#include "common/host_fs.h"
#include "common/result.h"
#include "common/unique_fd.h"
#include "kubevirt-plugin/offered_device.h"

namespace ferry {

/// Its directory in sysfs, relative to the host's root.
std::filesystem::path sysfs_path_of(const OfferedDevice& offered);
/// The same of the list of those that are in its IOMMU group by what is offered.
std::filesystem::path group_path_of(const OfferedDevice& offered);

/// What the host is asked about a device in, held open. What is absent is to be asked for by the path.
///
/// sysfs makes each device that comes a directory of its own, and so each group, and leaves nothing in that
/// of one that has gone. So what is there is of the device that was there when this was opened, and what is
/// not may be there by the path. But a list of a group that has gone is empty: it is the device's group's
/// only where the device is in it. And a mediated device whose removal is under way may be seen a moment
/// longer than by the path, which goes first. ABI: fs/kernfs, as tests/vfio/kernel_effects_test.cpp shows.
struct DeviceDirectories {
  HostDirectory own;
  /// Absent: of a vGPU, whose GPU's says more, or it cannot be opened.
  std::optional<UniqueFd> config = {};
  /// At group_path_of(). Absent: of a mediated device, which is alone in its group, or it cannot be opened.
  std::optional<HostDirectory> group = {};

  static Result<DeviceDirectories> open(const HostFs& host, const OfferedDevice& offered);
  bool are_same(const DeviceDirectories& other) const;
};

/// Those of devices that have been asked about, since the ways there cost a quarter of what asking does. Any
/// thread may call.
class KeptDirectories {
 public:
  /// Of so many devices, three descriptors each at most: for one more, all are let go of. What has gone stays
  /// until then, or until it is asked about. What is asked just now may be open beside.
  static constexpr std::size_t kMost = 64;

  /// Null: none are kept.
  std::shared_ptr<const DeviceDirectories> kept(const OfferedDevice& offered) const;
  /// Opened now, and kept from now on instead of those of before.
  Result<std::shared_ptr<const DeviceDirectories>> open(const HostFs& host, const OfferedDevice& offered);

 private:
  using Key = std::pair<std::string, std::uint32_t>;  // its name in sysfs, its group
  using Devices = std::map<Key, std::shared_ptr<const DeviceDirectories>>;

  mutable std::mutex mutex_;
  Devices devices_;
};

}  // namespace ferry
