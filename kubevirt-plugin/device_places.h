// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
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

/// Where the host is asked about one device, held open.
///
/// What is read here is of the device that was there when it was opened. sysfs makes each that comes a
/// directory of its own, and one that has gone leaves nothing in it: so an answer is as true as one read by
/// the path, and what is not there any more is to be looked for by the path. ABI: fs/kernfs, as
/// tests/vfio/kernel_effects_test.cpp shows.
struct DevicePlace {
  HostDirectory device;
  /// Its config space. Absent: of a vGPU, or it cannot be opened.
  std::optional<UniqueFd> config;
  /// The members of its IOMMU group: sys/kernel/iommu_groups/N/devices.
  Result<HostDirectory> group;

  static Result<DevicePlace> open(const HostFs& host, const OfferedDevice& offered);
};

/// Those of devices that have been asked about, since the way to a place costs more than what is read there.
/// Any thread may call.
class DevicePlaces {
 public:
  /// Three descriptors each.
  static constexpr std::size_t kMost = 64;

  /// Null: none is kept.
  std::shared_ptr<const DevicePlace> kept(const OfferedDevice& offered) const;
  /// Opened now, and kept from now on in the place of the one before.
  Result<std::shared_ptr<const DevicePlace>> open(const HostFs& host, const OfferedDevice& offered);

 private:
  using Key = std::pair<std::string, std::uint32_t>;  // its name in sysfs, its group

  mutable std::mutex mutex_;
  std::map<Key, std::shared_ptr<const DevicePlace>> places_;
};

}  // namespace ferry
