// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "common/host_fs.h"

namespace ferry {

/// What people call a PCI device ID: "AD102 [GeForce RTX 4090]" for 10de:2684.
///
/// Our own table (configs/pci-names.tsv, compiled in) comes first, so that a name never changes under a
/// resource that is in use; the host's pci.ids is asked for the IDs it lacks. One thread at a time.
class DeviceNames {
 public:
  /// `host` must outlive this.
  explicit DeviceNames(const HostFs& host) : host_(host) {}

  /// Absent when neither knows the ID. That the host has no pci.ids is no error.
  std::optional<std::string> find(std::uint16_t vendor, std::uint16_t device);
  /// The vendor's name in the host's pci.ids. Absent: there is none.
  std::optional<std::string> find_vendor(std::uint16_t vendor);

 private:
  const HostFs& host_;
  std::map<std::pair<std::uint16_t, std::uint16_t>, std::optional<std::string>> seen_;
  std::map<std::uint16_t, std::optional<std::string>> vendors_;
};

/// The compiled-in table's text, comment lines and all: device ID, name, resource name, flag, separated by
/// TAB.
std::string_view shipped_device_names();

/// Finds a device in the text of a pci.ids file (format: its own head; vendor lines begin in the first
/// column, device lines with one TAB, subsystems with two). Absent when it is not there or its name is empty.
std::optional<std::string> find_in_pci_ids(std::string_view text, std::uint16_t vendor, std::uint16_t device);

/// Finds a vendor's name there.
std::optional<std::string> find_vendor_in_pci_ids(std::string_view text, std::uint16_t vendor);

}  // namespace ferry
