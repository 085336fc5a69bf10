// SPDX-License-Identifier: Apache-2.0
// Chips with registers that Ferry knows, and the places of these registers.
// Source: NVIDIA's gpu-admin-tools v2025.10.20 (gpu/devid_chips.py, gpu/regs, nvidia_gpu_tools.py).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace ferry::vfio {

/// Chips that have a register at the same place.
enum class ChipFamily : std::uint8_t {
  hopper,
  gb10x,  ///< Blackwell of data centers
  gb20x,  ///< Blackwell of workstations
  ls10,   ///< NVSwitch of Hopper boards
  lr10,   ///< NVSwitch of A100 boards, without any of these registers
};

struct Chip {
  std::string_view name;  ///< "gh100"
  ChipFamily family = ChipFamily::hopper;
};

/// NVIDIA's PCI vendor id.
inline constexpr std::uint16_t kNvidia = 0x10de;

/// The chip of a GPU of NVIDIA, by its PCI device id. Absent: older than Hopper, or unknown.
std::optional<Chip> gpu_chip(std::uint16_t device);
/// The same by both PCI ids, as "10de:2331". Absent, too: another vendor's.
std::optional<Chip> gpu_chip(std::string_view ids);
/// The chip of an NVSwitch, by its register 0. Absent: unknown.
std::optional<Chip> switch_chip(std::uint32_t boot_0);

/// A bit field of a register. Offset 0: the family has no such register.
struct Field {
  std::uint32_t offset = 0;
  unsigned shift = 0;
  std::uint32_t mask = 0;  ///< after the shift

  constexpr bool exists() const { return offset != 0; }
  constexpr std::uint32_t of(std::uint32_t value) const { return (value >> shift) & mask; }
};

/// The places of a family's facts.
struct RegisterPlaces {
  std::uint32_t boot = 0;       ///< reads 0xff once the boot is complete
  Field recovery;               ///< its values that mean "not in recovery" are below
  std::uint32_t last_good = 0;  ///< `recovery` from 0 to this means a normal boot
  Field cc_mode;                ///< the values of CcMode
  Field ppcie;                  ///< 1: protected PCIe is on
  Field bar0_filter;            ///< 1: BAR 0 is filtered
  Field nvlink_encryption;      ///< 1: NVLink is encrypted
  Field scrubbed;               ///< 1: the memory has been cleared since the last reset
  Field memory;                 ///< the whole word, for memory_bytes()
  Field ecc;                    ///< 1: on
  std::uint32_t chip_id = 0;    ///< the lower half; the upper half follows. 0: it has none
};

/// nullptr for lr10.
const RegisterPlaces* register_places(ChipFamily family);

/// The memory of a GPU of Hopper or newer, in bytes, from the word of RegisterPlaces::memory. Part of it is
/// used up by ECC if that is on, and is not counted.
std::uint64_t memory_bytes(std::uint32_t word);

}  // namespace ferry::vfio
