// SPDX-License-Identifier: Apache-2.0
// Facts from sysfs about GPUs that no driver of their vendor monitors: link, errors, power state, IOMMU
// group.
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

#include "hostfs/host_fs.h"
#include "vfio/pci/pci_address.h"

namespace ferry::agent {

/// Counts of an aer_dev_* attribute since the kernel found the device.
struct ErrorCounts {
  std::optional<std::uint64_t> total = {};           ///< the kernel's own, which may differ from the sum
  std::map<std::string, std::uint64_t> counts = {};  ///< by the kernel's name of the error: "BadTLP"
};

/// Parses lines "NAME COUNT", the last being "TOTAL_ERR_COR 0". Other lines are ignored, and so are more
/// names than any kernel has.
ErrorCounts parse_error_counts(std::string_view text);

/// Transfers per second, from "16.0 GT/s PCIe" or "8 GT/s"; absent: the kernel does not know the speed.
std::optional<double> parse_link_speed(std::string_view text);

struct ReportedErrors {
  /// The end of the link that counted, "device" or "upstream": some errors of a link appear only at its upper
  /// end.
  std::string_view port = "device";
  std::string_view severity = "correctable";  ///< or "nonfatal", "fatal"
  ErrorCounts counts;
};

struct LinkNumbers {
  std::optional<double> current_speed = {};  ///< transfers per second
  /// Limit of both ends, as max_lanes: the slot may support less than the card.
  std::optional<double> max_speed = {};
  std::optional<unsigned> current_lanes = {};
  std::optional<unsigned> max_lanes = {};
};

/// A field is absent if the host does not show it, or it was not read; no field has a default value.
struct GpuFacts {
  vfio::PciAddress address;
  bool held = false;  ///< a write to the GPU is stuck: none of its facts was read
  std::optional<int> numa_node = {};
  std::optional<std::string> power_state = {};  ///< in the kernel's words: "D0", "D3hot", "unknown" ...
  LinkNumbers link = {};                        ///< only of an awake GPU: a read would wake the GPU
  std::vector<ReportedErrors> errors = {};
  std::optional<bool> group_viable = {};  ///< its IOMMU group can be given to a VM as it is
};

/// Reads each GPU. Never fails: a GPU that is gone has only absent facts. The caller must tolerate a read
/// that hangs. If the records of in-flight writes cannot be read, every GPU counts as held.
std::vector<GpuFacts> read_gpu_facts(const HostFs& host, std::span<const vfio::PciAddress> gpus);

}  // namespace ferry::agent
