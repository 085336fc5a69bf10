// SPDX-License-Identifier: Apache-2.0
// What a function's owner would like to know before and after it goes to a VM: how it can be reset, how it
// sleeps, how it is linked, where its memory lies, which device nodes stand for it. No plan depends on any of
// this; it is read apart from the scan, since it costs some twenty reads a function.
// ABI: Documentation/ABI/testing/sysfs-bus-pci, sysfs-devices-power, sysfs-devices-vfio-dev;
// Documentation/driver-api/vfio.rst.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/host_fs.h"
#include "vfio/pci_address.h"
#include "vfio/pci_resources.h"

namespace ferry {

struct ResetFacts {
  /// What the kernel tries, in that order ("flr", "pm", "bus"). Empty: it was told to use none. Absent: the
  /// function had no way when it was found, or the kernel is older than 5.15 and does not say.
  std::optional<std::vector<std::string>> methods;
  /// Whether the file `reset` is there, which it is when some method works.
  std::optional<bool> offered;
};

struct PowerFacts {
  std::optional<std::string> state;           ///< "D0", "D3hot", "D3cold", "unknown"
  std::optional<std::string> runtime_status;  ///< "active", "suspended", "unsupported", "error"
  std::optional<bool> d3cold_allowed;
  std::optional<std::string> control;  ///< "auto": may sleep when nobody uses it; "on": never sleeps
};

/// The PCI Express link above the function. What the kernel calls unknown is absent.
struct LinkFacts {
  std::optional<std::string> current_speed;  ///< as the kernel writes it: "16.0 GT/s PCIe"
  std::optional<std::string> max_speed;
  std::optional<unsigned> current_width;  ///< lanes
  std::optional<unsigned> max_width;
};

struct ResizableBar {
  unsigned index = 0;                    ///< 0..5
  std::vector<std::uint64_t> sizes_mib;  ///< the sizes it could have, ascending
  bool operator==(const ResizableBar&) const = default;
};

/// How user space would open the function. Names change with each binding: read them right before use.
struct VfioFacts {
  std::optional<std::string> group_node;  ///< "/dev/vfio/41", where that node is there
  /// Names in vfio-dev/ ("vfio3"). Absent: on no vfio driver, or a kernel before 6.1.
  std::optional<std::vector<std::string>> devices;
  std::optional<std::string> cdev_node;  ///< "/dev/vfio/devices/vfio3", where that node is there (Linux 6.6)
};

/// Absent is what the host does not show; nothing here is a default. What it shows and cannot be read is
/// absent too, and noted.
struct DeviceFacts {
  ResetFacts reset;
  PowerFacts power;
  LinkFacts link;
  std::optional<int> numa_node;  ///< absent also where the kernel says -1: unknown
  std::optional<std::vector<Bar>> bars;
  std::vector<ResizableBar> resizable_bars;  ///< those for which there is a `resourceN_resize`
  std::optional<bool> rom;                   ///< whether there is a `rom` file
  std::optional<Bar> rom_range;              ///< where that lies: the seventh line of `resource`
  std::optional<std::string> serial_number;  ///< of the card, where it has one and a kernel of 2026 shows it
  VfioFacts vfio;
  std::vector<std::string> notes;  ///< what could not be read, for people
};

/// Reads one function. Never fails: of one that is not there everything is absent, which the notes say.
/// Reading the link and the resizable BARs wakes a sleeping function for a moment.
DeviceFacts read_device_facts(const HostFs& host, const PciAddress& address);

/// Whether the host offers iommufd: the node /dev/iommu (Linux 6.2).
bool has_iommufd(const HostFs& host);

}  // namespace ferry
