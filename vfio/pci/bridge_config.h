// SPDX-License-Identifier: Apache-2.0
// Facts from a bridge's config space: ACS isolation of the devices below, and the size of its memory window.
// ABI: PCI Local Bus 3.0, 6.7 (capabilities); PCI-to-PCI Bridge 1.2, 3.2.5 (window); PCI Express Base 5.0,
// 7.5.3.2 (port types), 7.6.3 (extended capabilities), 7.7.8 (ACS). The rule for isolation is the kernel's
// drivers/pci/pci.c, pci_acs_enabled(), without its list of ports that isolate without ACS.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/result.h"

namespace ferry::vfio {

struct PortIsolation {
  enum class Kind {
    isolates,      ///< devices below reach their neighbours through the IOMMU only
    bits_off,      ///< the port has ACS, and some bits are off: `missing`
    no_acs,        ///< the port has no ACS capability
    conventional,  ///< a bridge to or of conventional PCI, which has no ACS
  };
  Kind kind = Kind::isolates;
  std::uint16_t control = 0;   ///< the ACS control register, with bits_off
  std::size_t control_at = 0;  ///< offset of that register in config space, with bits_off
  std::uint16_t missing = 0;   ///< bits of the four that the port supports and that are off
  /// Set with no_acs: true if config space reaches the extended capabilities (256 bytes of it do not).
  bool extended = true;
};

/// Judges a bridge by its whole config space. Errc::malformed_host: config space is cut off (other users than
/// root see 64 bytes), or a capability list leaves it or has a loop.
Result<PortIsolation> port_isolation(std::string_view config);

/// Names of ACS bits: "P2P request redirect (0x0004), upstream forwarding (0x0010)".
std::string acs_bits_text(std::uint16_t bits);

/// A bridge's window for prefetchable memory below it, in bytes; size 0: closed. prefetchable_window() is
/// absent for a function that is no bridge, and for a header that is cut off.
struct BridgeWindow {
  std::uint64_t start = 0;
  std::uint64_t size = 0;
  bool operator==(const BridgeWindow&) const = default;
};
std::optional<BridgeWindow> prefetchable_window(std::string_view config);

}  // namespace ferry::vfio
