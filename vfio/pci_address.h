// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/result.h"

namespace ferry {

/// The place of one PCI function: domain:bus:device.function, as sysfs names it ("0000:3b:00.0"). The domain
/// has four hex digits or more ("10000:01:00.0" behind VMD or Hyper-V).
struct PciAddress {
  std::uint32_t domain = 0;
  std::uint8_t bus = 0;
  std::uint8_t device = 0;    ///< 0..31
  std::uint8_t function = 0;  ///< 0..7

  auto operator<=>(const PciAddress&) const = default;

  /// Exactly the form that sysfs uses, lower or upper case. Errc::usage says what is wrong and shows the
  /// form; a short form without its domain is refused with the long one as the hint.
  static Result<PciAddress> parse(std::string_view text);

  /// Lower case, as sysfs has it.
  std::string text() const;

  /// Same domain, bus and device: functions of one card.
  bool same_slot(const PciAddress& other) const {
    return domain == other.domain && bus == other.bus && device == other.device;
  }
};

}  // namespace ferry
