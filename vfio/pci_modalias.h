// SPDX-License-Identifier: Apache-2.0
// What a PCI function's modalias says of it: five attributes by one read.
// ABI: drivers/pci/pci-sysfs.c, modalias_show().
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace ferry {

/// The same values that the attributes of these names have.
struct PciModalias {
  std::uint16_t vendor = 0;
  std::uint16_t device = 0;
  std::uint16_t subsystem_vendor = 0;
  std::uint16_t subsystem_device = 0;
  std::uint32_t class_code = 0;  ///< 24 bits: class, subclass, programming interface
  bool operator==(const PciModalias&) const = default;
};

/// "pci:v000010DEd00002684sv000010DEsd0000167Cbc03sc00i00" and nothing else; absent: it is not that.
std::optional<PciModalias> parse_pci_modalias(std::string_view text);

}  // namespace ferry
