// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/result.h"

namespace ferry {

/// The address of one PCI function: domain:bus:device.function, as sysfs names it ("0000:3b:00.0"). The
/// domain has four hex digits or more ("10000:01:00.0" behind VMD or Hyper-V).
struct PciAddress {
  std::uint32_t domain = 0;
  std::uint8_t bus = 0;
  std::uint8_t device = 0;    ///< 0..31
  std::uint8_t function = 0;  ///< 0..7

  auto operator<=>(const PciAddress&) const = default;

  /// Parses exactly the form that sysfs uses, in lower or upper case. Errc::usage for all others, with the
  /// form as the hint; for a short form without its domain the hint is the long form.
  static Result<PciAddress> parse(std::string_view text);

  /// The address in lower case, as sysfs has it.
  std::string text() const;

  /// True for functions of one card: same domain, bus and device.
  bool same_slot(const PciAddress& other) const {
    return domain == other.domain && bus == other.bus && device == other.device;
  }
};

}  // namespace ferry
