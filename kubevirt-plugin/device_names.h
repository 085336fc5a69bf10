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

/// Names of PCI device IDs for people: "AD102 [GeForce RTX 4090]" for 10de:2684.
///
/// The compiled-in table (configs/pci-names.tsv) has priority, so that the name of a resource in use never
/// changes. IDs that it lacks come from the host's pci.ids. Not for several threads at a time.
class DeviceNames {
 public:
  /// `host` must outlive this object.
  explicit DeviceNames(const HostFs& host) : host_(host) {}

  /// Absent: neither source knows the ID. A host without pci.ids is not an error.
  std::optional<std::string> find(std::uint16_t vendor, std::uint16_t device);
  /// The vendor's name in the host's pci.ids. Absent: there is none.
  std::optional<std::string> find_vendor(std::uint16_t vendor);

 private:
  const HostFs& host_;
  std::map<std::pair<std::uint16_t, std::uint16_t>, std::optional<std::string>> seen_;
  std::map<std::uint16_t, std::optional<std::string>> vendors_;
};

/// The text of the compiled-in table, with its comment lines. Columns, separated by TAB: device ID, name,
/// resource name, flag.
std::string_view shipped_device_names();

/// Finds a device in the text of a pci.ids file. Absent: it is not listed, or its name is empty. The file's
/// head describes the format: vendor lines have no TAB, device lines one, subsystem lines two.
std::optional<std::string> find_in_pci_ids(std::string_view text, std::uint16_t vendor, std::uint16_t device);

/// Finds a vendor's name in the text of a pci.ids file.
std::optional<std::string> find_vendor_in_pci_ids(std::string_view text, std::uint16_t vendor);

}  // namespace ferry
