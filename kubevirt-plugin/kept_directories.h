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

/// The device's directory in sysfs, relative to the host's root.
std::filesystem::path sysfs_path_of(const OfferedDevice& offered);
/// The directory of sysfs that lists the members of the device's IOMMU group, relative to the host's root.
std::filesystem::path group_path_of(const OfferedDevice& offered);

/// Open directories of a device, for questions about it. A question that needs an absent directory uses its
/// path.
///
/// sysfs gives each device and each group a directory of its own when it appears, and empties the directory
/// when it goes. An entry found here therefore belongs to the device that existed at the time of opening; a
/// missing entry may exist below the path. The list of a removed group is empty, so it counts only if it
/// contains the device. A mediated device that is being removed may stay visible here a moment longer than by
/// its path. ABI: fs/kernfs, as tests/vfio/kernel_effects_test.cpp shows.
struct DeviceDirectories {
  HostDirectory own;
  /// Absent: for a vGPU, whose GPU's says more, or if it cannot be opened.
  std::optional<UniqueFd> config = {};
  /// At group_path_of(). Absent: for a mediated device, alone in its group, or if it cannot be opened.
  std::optional<HostDirectory> group = {};

  static Result<DeviceDirectories> open(const HostFs& host, const OfferedDevice& offered);
  bool are_same(const DeviceDirectories& other) const;
};

/// Keeps the open directories of devices that were asked about, since opening them costs a quarter of the
/// question. Any thread may call.
class KeptDirectories {
 public:
  /// The most devices, with at most three descriptors each. Another device closes all of them. Directories of
  /// a removed device stay until then or until the next question. Directories in use stay open.
  static constexpr std::size_t kMost = 64;

  /// Null: none are kept.
  std::shared_ptr<const DeviceDirectories> kept(const OfferedDevice& offered) const;
  /// Opens the directories now and keeps them in place of the earlier ones.
  Result<std::shared_ptr<const DeviceDirectories>> open(const HostFs& host, const OfferedDevice& offered);

 private:
  using Key = std::pair<std::string, std::uint32_t>;  // its name in sysfs and its group
  using Devices = std::map<Key, std::shared_ptr<const DeviceDirectories>>;

  mutable std::mutex mutex_;
  Devices devices_;
};

}  // namespace ferry
