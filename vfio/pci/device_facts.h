// SPDX-License-Identifier: Apache-2.0
// Facts for the owner of a function before and after a VM uses it: reset, power, link, NUMA node and BARs,
// device nodes. No plan depends on them; they are read apart from the scan, since a function costs some
// twenty reads.
// ABI: Documentation/ABI/testing/sysfs-bus-pci, sysfs-devices-power, sysfs-devices-vfio-dev;
// Documentation/driver-api/vfio.rst.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "hostfs/host_fs.h"
#include "vfio/pci/pci_address.h"
#include "vfio/pci/pci_resources.h"

namespace ferry::vfio {

struct ResetFacts {
  /// Methods that the kernel tries, in order ("flr", "pm", "bus"). Empty: the kernel is set to use none.
  /// Absent: the function had no method when it was found, or the kernel is older than 5.15.
  std::optional<std::vector<std::string>> methods;
  /// True if the file `reset` exists, which needs a working method.
  std::optional<bool> offered;
};

struct PowerFacts {
  std::optional<std::string> state;           ///< "D0", "D3hot", "D3cold", "unknown"
  std::optional<std::string> runtime_status;  ///< "active", "suspended", "unsupported", "error"
  std::optional<bool> d3cold_allowed;
  std::optional<std::string> control;  ///< "auto": may sleep while unused; "on": never sleeps
};

/// The PCI Express link above the function. A value that the kernel calls unknown is absent.
struct LinkFacts {
  std::optional<std::string> current_speed;  ///< as the kernel writes it: "16.0 GT/s PCIe"
  std::optional<std::string> max_speed;
  std::optional<unsigned> current_width;  ///< lanes
  std::optional<unsigned> max_width;
};

struct ResizableBar {
  unsigned index = 0;                    ///< 0..5
  std::vector<std::uint64_t> sizes_mib;  ///< sizes that it supports, ascending
  bool operator==(const ResizableBar&) const = default;
};

/// Device nodes of the function. Names change with each bind, so read them right before use.
struct VfioFacts {
  std::optional<std::string> group_node;  ///< "/dev/vfio/41"; absent: no such node
  /// Names in vfio-dev/ ("vfio3"). Absent: not on a vfio driver, or a kernel before 6.1.
  std::optional<std::vector<std::string>> devices;
  std::optional<std::string> cdev_node;  ///< "/dev/vfio/devices/vfio3" (Linux 6.6); absent: no such node
};

/// All facts of a function. A value that the host does not show is absent, never a default. A value that
/// cannot be read is absent too, and noted.
struct DeviceFacts {
  ResetFacts reset;
  PowerFacts power;
  LinkFacts link;
  std::optional<int> numa_node;  ///< absent also if the kernel says -1: unknown
  std::optional<std::vector<Bar>> bars;
  std::vector<ResizableBar> resizable_bars;  ///< BARs with a `resourceN_resize` file
  std::optional<bool> rom;                   ///< true: there is a `rom` file
  std::optional<Bar> rom_range;              ///< the ROM's range: the seventh line of `resource`
  std::optional<std::string> serial_number;  ///< of the card; only kernels of 2026 and newer show it
  VfioFacts vfio;
  std::vector<std::string> notes;  ///< facts that could not be read, for people
};

/// Reads one function and never fails: if the function does not exist, all facts are absent and a note says
/// so. Reading the link and the resizable BARs wakes a sleeping function for a moment.
DeviceFacts read_device_facts(const HostFs& host, const PciAddress& address);

/// True if the host offers iommufd: the node /dev/iommu (Linux 6.2).
bool has_iommufd(const HostFs& host);

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

}  // namespace ferry::vfio
