// SPDX-License-Identifier: Apache-2.0
// A PCI function's modalias, which gives five attributes in one read.
// ABI: drivers/pci/pci-sysfs.c, modalias_show().
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace ferry {

/// The values of the attributes with these names.
struct PciModalias {
  std::uint16_t vendor = 0;
  std::uint16_t device = 0;
  std::uint16_t subsystem_vendor = 0;
  std::uint16_t subsystem_device = 0;
  std::uint32_t class_code = 0;  ///< 24 bits: class, subclass, programming interface
  bool operator==(const PciModalias&) const = default;
};

/// Parses "pci:v000010DEd00002684sv000010DEsd0000167Cbc03sc00i00"; absent: the text has another form.
std::optional<PciModalias> parse_pci_modalias(std::string_view text);

}  // namespace ferry
