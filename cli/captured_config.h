// SPDX-License-Identifier: Apache-2.0
// The config space of a PCI function as a capture keeps it. ABI: PCI Local Bus 3.0, 6.7 (capabilities) and
// appendix I (VPD); PCI Express Base 5.0, 7.6.3 (extended capabilities), 7.9.3 (Device Serial Number).
#pragma once

#include <string>

namespace ferry {

/// Returns config space (64, 256 or 4096 bytes) with zeros in place of data that identifies one card. This is
/// each Device Serial Number capability's number (a network card's is mostly its MAC address), and the four
/// bytes of VPD that were read last. All other bytes keep their places, so that it reads as before. Broken
/// lists and loops are followed as far as they go.
std::string without_serial_numbers(std::string config);

}  // namespace ferry
