// SPDX-License-Identifier: Apache-2.0
// Config space of bridges, made byte by byte.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace ferry::test {

inline constexpr unsigned kRootPort = 4;
inline constexpr unsigned kUpstreamPort = 5;
inline constexpr unsigned kDownstreamPort = 6;
inline constexpr unsigned kToConventional = 7;
inline constexpr unsigned kFromConventional = 8;

inline void put16(std::string& space, std::size_t at, unsigned value) {
  space[at] = static_cast<char>(value & 0xffU);
  space[at + 1] = static_cast<char>((value >> 8U) & 0xffU);
}
inline void put32(std::string& space, std::size_t at, std::uint32_t value) {
  put16(space, at, value & 0xffffU);
  put16(space, at + 2, value >> 16U);
}

struct Acs {
  unsigned can = 0x1f;  ///< the capability register
  unsigned does = 0;    ///< the control register
};

/// A bridge with a power management capability at 0x40 and, if `type` is set, a PCI Express one at 0x60; with
/// error reporting at 0x100 and, if `acs` is set, that at 0x148.
inline std::string bridge_space(std::optional<unsigned> type, std::optional<Acs> acs) {
  std::string space(4096, '\0');
  put16(space, 0x00, 0x8086);
  put16(space, 0x06, 0x0010);  // has a list of capabilities
  space[0x0e] = 1;
  space[0x34] = 0x40;
  space[0x40] = 0x01;
  if (type) {
    space[0x41] = 0x60;
    space[0x60] = 0x10;
    put16(space, 0x62, (*type << 4U) | 2U);
    put32(space, 0x100, 0x00020001U | (acs ? 0x14800000U : 0U));
  }
  if (acs) {
    put32(space, 0x148, 0x0001000dU);
    put16(space, 0x14c, acs->can);
    put16(space, 0x14e, acs->does);
  }
  return space;
}

}  // namespace ferry::test
