// SPDX-License-Identifier: Apache-2.0
// The config space of a PCI function as a capture keeps it. ABI: PCI Local Bus 3.0, 6.7 (capabilities) and
// appendix I (VPD); PCI Express Base 5.0, 7.6.3 (extended capabilities), 7.9.3 (Device Serial Number).
#pragma once

#include <string>

namespace ferry {

/// Config space (64, 256 or 4096 bytes) with zeros for what names one card in the world: the number of each
/// Device Serial Number capability (a network card's is mostly its MAC address), and the four bytes of its
/// VPD that were read last. Everything else keeps its place, so that it is read as it was. Lists that lead
/// nowhere or in circles are followed as far as they go.
std::string without_serial_numbers(std::string config);

}  // namespace ferry
