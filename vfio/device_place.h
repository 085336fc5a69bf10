// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/host_fs.h"
#include "vfio/pci_address.h"

namespace ferry {

/// Where in the machine a function sits.
/// ABI: Documentation/ABI/testing/sysfs-bus-pci (slots), the links in sys/bus/pci/devices.
struct DevicePlace {
  /// The name that firmware or a hotplug driver gives the slot ("4"). Absent: it names none.
  std::optional<std::string> slot;
  /// The host bridge and the bridges above it, outermost first: "pci0000:00", "0000:00:01.0".
  std::vector<std::string> above;
};

/// Of a function that is not there nothing is known.
DevicePlace read_place(const HostFs& host, const PciAddress& address);

}  // namespace ferry
