// SPDX-License-Identifier: Apache-2.0
#include "vfio/pci/bridge_config.h"

#include <array>
#include <vector>

#include <fmt/format.h>

#include "vfio/pci/config_space.h"

namespace ferry::vfio {
namespace {

constexpr std::size_t kHeaderBytes = 64;
constexpr std::size_t kHeaderType = 0x0e;
constexpr unsigned kMultiFunction = 0x80;

struct AcsBit {
  std::uint16_t bit;
  const char* name;
};
// ACS bits that the kernel requires of a port that isolates devices (drivers/iommu/iommu.c, REQ_ACS_FLAGS).
constexpr std::array<AcsBit, 4> kIsolationBits = {{{.bit = 0x0001, .name = "source validation"},
                                                   {.bit = 0x0004, .name = "P2P request redirect"},
                                                   {.bit = 0x0008, .name = "P2P completion redirect"},
                                                   {.bit = 0x0010, .name = "upstream forwarding"}}};

}  // namespace

Result<PortIsolation> port_isolation(std::string_view config) {
  constexpr std::uint8_t kPciExpress = 0x10;
  constexpr std::uint16_t kAcs = 0x000d;
  enum PortType : unsigned {
    root = 4,
    upstream = 5,
    downstream = 6,
    to_conventional = 7,
    of_conventional = 8
  };
  if (config.size() < kConventionalBytes)
    return malformed_config(fmt::format("only {} bytes; the rest is root's to read", config.size()));
  const auto express = find_capability(config, kPciExpress);
  if (!express) return fail(express.error());
  if (!*express) return PortIsolation{.kind = PortIsolation::Kind::conventional};
  // Capabilities begin at multiples of four, so their first four bytes are inside config space.
  const unsigned type = (word_at(config, **express + 2) >> 4U) & 0xfU;
  if (type == to_conventional || type == of_conventional)
    return PortIsolation{.kind = PortIsolation::Kind::conventional};
  // The devices below a port of another type can reach no neighbour except functions beside the port.
  const bool beside = (byte_at(config, kHeaderType) & kMultiFunction) != 0;
  if (type != root && type != downstream && !beside) return PortIsolation{};
  const auto acs = find_extended(config, kAcs);
  if (!acs) return fail(acs.error());
  if (!*acs)
    return PortIsolation{.kind = PortIsolation::Kind::no_acs, .extended = config.size() > kConventionalBytes};

  constexpr std::size_t kCapability = 4;
  constexpr std::size_t kControl = 6;
  if (**acs + kControl + 2 > config.size())
    return malformed_config(fmt::format("ACS at {:#x}, and only {} bytes", **acs, config.size()));
  // A bit that the port lacks is not required: the hardware is wired that way.
  const std::uint16_t can = word_at(config, **acs + kCapability);
  const std::uint16_t does = word_at(config, **acs + kControl);
  std::uint16_t missing = 0;
  for (const AcsBit& needed : kIsolationBits)
    if ((can & needed.bit) != 0 && (does & needed.bit) == 0) missing |= needed.bit;
  if (missing == 0) return PortIsolation{};
  return PortIsolation{.kind = PortIsolation::Kind::bits_off,
                       .control = does,
                       .control_at = **acs + kControl,
                       .missing = missing};
}

std::string acs_bits_text(std::uint16_t bits) {
  std::vector<std::string> names;
  for (const AcsBit& known : kIsolationBits)
    if ((bits & known.bit) != 0) names.push_back(fmt::format("{} ({:#06x})", known.name, known.bit));
  return fmt::format("{}", fmt::join(names, ", "));
}

std::optional<BridgeWindow> prefetchable_window(std::string_view config) {
  constexpr unsigned kBridge = 1;
  constexpr std::size_t kBase = 0x24;
  constexpr std::size_t kLimit = 0x26;
  constexpr std::size_t kUpperBase = 0x28;
  constexpr std::size_t kUpperLimit = 0x2c;
  constexpr unsigned k64Bit = 0x1;  // in the lower four bits of base and limit
  if (config.size() < kHeaderBytes) return std::nullopt;
  if ((byte_at(config, kHeaderType) & ~kMultiFunction) != kBridge) return std::nullopt;
  const std::uint16_t base = word_at(config, kBase);
  const std::uint16_t limit = word_at(config, kLimit);
  // Base and limit are the upper twelve of 32 bits; a window is whole MiB.
  std::uint64_t start = static_cast<std::uint64_t>(base & 0xfff0U) << 16U;
  std::uint64_t last = (static_cast<std::uint64_t>(limit & 0xfff0U) << 16U) | 0xfffffU;
  if ((base & 0xfU) == k64Bit) {
    start |= static_cast<std::uint64_t>(dword_at(config, kUpperBase)) << 32U;
    last |= static_cast<std::uint64_t>(dword_at(config, kUpperLimit)) << 32U;
  }
  if (last < start) return BridgeWindow{};
  if (last - start == UINT64_MAX) return std::nullopt;
  return BridgeWindow{.start = start, .size = last - start + 1};
}

}  // namespace ferry::vfio
