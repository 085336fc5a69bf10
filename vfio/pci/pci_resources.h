// SPDX-License-Identifier: Apache-2.0
// The address ranges of a PCI function, from the text of its `resource` file.
// ABI: Documentation/PCI/sysfs-pci.rst: a line for each range, "start end flags", all hexadecimal; the flags
// are those of the kernel's include/linux/ioport.h, which libpci reads the same way.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ferry::vfio {

/// A base address register that requests addresses.
struct Bar {
  unsigned index =
      0;  ///< 0..5, 6: the expansion ROM's; the second register of a 64-bit BAR has no entry of its own
  std::uint64_t start = 0;  ///< CPU physical address (of I/O ports: port number)
  std::uint64_t size = 0;   ///< bytes, never 0
  std::uint64_t flags = 0;  ///< IORESOURCE_* as the kernel shows them

  bool is_io() const { return (flags & 0x100U) != 0; }
  bool is_memory() const { return (flags & 0x200U) != 0; }
  bool is_prefetchable() const { return (flags & 0x2000U) != 0; }
  bool is_64bit() const { return (flags & 0x100000U) != 0; }
  /// False: firmware and kernel found no room for the BAR, and `start` means nothing.
  bool is_assigned() const { return (flags & 0x20000000U) == 0; }
  /// True for an expansion ROM whose range is the copy in RAM that a PC's firmware has run, not the card's
  /// ROM.
  bool is_rom_copy() const { return (flags & 0x2U) != 0; }
  bool operator==(const Bar&) const = default;
};

struct PciResources {
  std::vector<Bar> bars;           ///< in order of index
  std::optional<Bar> rom;          ///< the expansion ROM's register, with index 6
  std::vector<std::string> notes;  ///< lines that could not be read, each with its number, from 1
};

/// Reads the whole text and never fails: a malformed BAR line is noted and left out, and a line of zeros is a
/// register that does not exist. Lines after the seventh (virtual functions, a bridge's windows) and further
/// columns are ignored.
PciResources parse_pci_resources(std::string_view text);

/// The sizes in MiB that a resizable BAR supports, ascending, from its `resourceN_resize` file: a hexadecimal
/// mask in which bit n stands for 2^n MiB. Absent: the text is no such mask.
/// ABI: Documentation/ABI/testing/sysfs-bus-pci, October 2022.
std::optional<std::vector<std::uint64_t>> parse_resizable_sizes(std::string_view text);

}  // namespace ferry::vfio
