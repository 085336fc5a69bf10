// SPDX-License-Identifier: Apache-2.0
// What a bridge's config space says of what is below it: whether it keeps devices from each other, and how
// much memory space it leads to them. ABI: PCI Local Bus 3.0, 6.7 (capabilities); PCI-to-PCI
// Bridge 1.2, 3.2.5 (window); PCI Express Base 5.0, 7.5.3.2 (port types), 7.6.3 (extended
// capabilities), 7.7.8 (ACS). What counts as isolating is the kernel's drivers/pci/pci.c, pci_acs_enabled(),
// less its list of ports that isolate without saying so.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/result.h"

namespace ferry {

struct PortIsolation {
  enum class Kind {
    isolates,      ///< nothing that is missing: what is below reaches its neighbours through the IOMMU alone
    bits_off,      ///< it has ACS, and not all of it is switched on: `missing`
    no_acs,        ///< it has no such capability
    conventional,  ///< a bridge to or of conventional PCI, where there is no ACS
  };
  Kind kind = Kind::isolates;
  std::uint16_t control = 0;   ///< the ACS control register, with bits_off
  std::size_t control_at = 0;  ///< where that is in config space, with bits_off
  std::uint16_t missing = 0;   ///< those of the four bits that the port has and that are off
  /// With no_acs: whether the extended capabilities are in sight at all (256 bytes of config space have
  /// none).
  bool extended = true;
};

/// Reads the whole of a bridge's config space. Errc::malformed_host: it is cut off (64 bytes are what other
/// users than root see), or its lists lead nowhere or in circles.
Result<PortIsolation> port_isolation(std::string_view config);

/// "P2P request redirect (0x0004), upstream forwarding (0x0010)"
std::string acs_bits_text(std::uint16_t bits);

/// The addresses that a bridge leads to prefetchable memory below it, in bytes; 0 when it is closed. Absent:
/// it is no bridge, or its header is cut off.
struct BridgeWindow {
  std::uint64_t start = 0;
  std::uint64_t size = 0;
  bool operator==(const BridgeWindow&) const = default;
};
std::optional<BridgeWindow> prefetchable_window(std::string_view config);

}  // namespace ferry
