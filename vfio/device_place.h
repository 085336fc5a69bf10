// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/host_fs.h"
#include "vfio/pci_address.h"

namespace ferry {

/// The physical place of a function in the machine.
/// ABI: Documentation/ABI/testing/sysfs-bus-pci (slots), the links in sys/bus/pci/devices.
struct DevicePlace {
  /// The slot's name from firmware or a hotplug driver ("4"). Absent: no slot is named.
  std::optional<std::string> slot;
  /// The host bridge and the bridges above the function, outermost first: "pci0000:00", "0000:00:01.0".
  std::vector<std::string> above;
};

/// Reads a function's place, which is empty if the function does not exist.
DevicePlace read_place(const HostFs& host, const PciAddress& address);

}  // namespace ferry
