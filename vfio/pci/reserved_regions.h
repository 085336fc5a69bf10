// SPDX-License-Identifier: Apache-2.0
// Ranges of addresses that the devices of an IOMMU group cannot use as they like.
// ABI: Documentation/ABI/testing/sysfs-kernel-iommu_groups, reserved_regions: a line for each range, "start
// end type"; drivers/iommu/iommu.c, iommu_group_resv_type_string.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"

namespace ferry::vfio {

struct ReservedRegion {
  std::string start;  ///< hexadecimal, as the kernel writes it
  std::string end;    ///< the last address of the range
  std::string type;   ///< "direct", "direct-relaxable", "reserved", "msi"

  /// True if the firmware needs this memory mapped for the device at any time. The kernel gives the group to
  /// no VM then: Linux 6.6 and newer refuse the claim (EINVAL), Intel's driver of older ones refuses, too
  /// (EPERM).
  bool keeps_from_vms() const { return type == "direct"; }
  bool operator==(const ReservedRegion&) const = default;
};

/// Parses the file of a group. An empty text has no region. Errc::malformed_host: a line has another form;
/// the message has its number.
Result<std::vector<ReservedRegion>> parse_reserved_regions(std::string_view text);

}  // namespace ferry::vfio
