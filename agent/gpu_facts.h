// SPDX-License-Identifier: Apache-2.0
// What sysfs says of a GPU that no driver of its maker watches: its link, its errors, its sleep, its group.
// ABI: Documentation/ABI/testing/sysfs-bus-pci, sysfs-bus-pci-devices-aer_stats (Linux 4.19),
// sysfs-devices-power.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/host_fs.h"
#include "vfio/pci_address.h"

namespace ferry {

/// One aer_dev_* attribute: since the device was found, as the kernel counts.
struct ErrorCounts {
  std::optional<std::uint64_t> total = {};           ///< the kernel's own, which need not be the sum
  std::map<std::string, std::uint64_t> counts = {};  ///< by what the kernel calls the error, "BadTLP"
};

/// Lines "NAME COUNT", the last one "TOTAL_ERR_COR 0". What is no such line is passed over, and so are lines
/// beyond those that any kernel has.
ErrorCounts parse_error_counts(std::string_view text);

/// Transfers per second of "16.0 GT/s PCIe" or "8 GT/s"; absent: the kernel does not know.
std::optional<double> parse_link_speed(std::string_view text);

enum class Severity { correctable, nonfatal, fatal };
std::string_view text(Severity severity);

/// Which end of the link counted: errors of a link may be seen at its upper end alone.
enum class LinkEnd { device, upstream };
std::string_view text(LinkEnd end);

struct SeenErrors {
  LinkEnd end = LinkEnd::device;
  Severity severity = Severity::correctable;
  ErrorCounts counts;
};

struct LinkNumbers {
  std::optional<double> current_speed = {};  ///< transfers per second
  /// Of both its ends, as max_lanes: the slot may be less than the card.
  std::optional<double> max_speed = {};
  std::optional<unsigned> current_lanes = {};
  std::optional<unsigned> max_lanes = {};
};

/// Absent is what the host does not show, or what was not read; nothing is a default.
struct GpuFacts {
  PciAddress address;
  bool held = false;  ///< an earlier write to it has not returned: nothing of it was read
  std::optional<int> numa_node = {};
  std::optional<std::string> power_state = {};  ///< "D0", "D3hot", "unknown" ..., as the kernel says
  LinkNumbers link = {};                        ///< of one that is awake: to read it wakes
  std::vector<SeenErrors> errors = {};
  std::optional<bool> group_viable = {};  ///< whether its IOMMU group, as it is, can be given to a VM
};

/// Reads each of them. Never fails: of one that is gone everything is absent. To be called where a read may
/// hang without harm. With records of writes that cannot be read every GPU counts as held.
std::vector<GpuFacts> read_gpu_facts(const HostFs& host, std::span<const PciAddress> gpus);

}  // namespace ferry
