// SPDX-License-Identifier: Apache-2.0
#include "vfio/pci/config_space.h"

#include <set>

#include <fmt/format.h>

namespace ferry::vfio {

tl::unexpected<Error> malformed_config(std::string_view what) {
  return fail(Errc::malformed_host, fmt::format("config space: {}", what));
}

Result<std::optional<std::size_t>> find_capability(std::string_view config, std::uint8_t capability) {
  constexpr std::size_t kStatus = 0x06;
  constexpr unsigned kHasList = 0x10;
  constexpr std::size_t kFirst = 0x34;
  constexpr std::size_t kHeaderBytes = 64;
  if ((word_at(config, kStatus) & kHasList) == 0) return std::optional<std::size_t>();
  std::set<std::size_t> seen;
  std::size_t at = byte_at(config, kFirst) & 0xfcU;  // the lower two bits are reserved
  while (at != 0) {
    if (at < kHeaderBytes)
      return malformed_config(fmt::format("a capability at {:#x}, inside the header", at));
    if (!seen.insert(at).second)
      return malformed_config(fmt::format("the capability at {:#x} comes twice", at));
    const std::uint8_t id = byte_at(config, at);
    if (id == 0xff)
      return malformed_config(fmt::format("all ones at {:#x}, where a capability should be", at));
    if (id == capability) return std::optional(at);
    at = byte_at(config, at + 1) & 0xfcU;
  }
  return std::optional<std::size_t>();
}

Result<std::optional<std::size_t>> find_extended(std::string_view config, std::uint16_t capability,
                                                 const std::function<bool(std::size_t at)>& is_it) {
  constexpr std::size_t kHeader = 4;
  std::set<std::size_t> seen;
  for (std::size_t at = kConventionalBytes; config.size() > kConventionalBytes;) {
    if (at + kHeader > config.size())
      return malformed_config(
          fmt::format("an extended capability at {:#x}, and only {} bytes", at, config.size()));
    if (!seen.insert(at).second)
      return malformed_config(fmt::format("the extended capability at {:#x} comes twice", at));
    const std::uint32_t header = dword_at(config, at);
    if (header == 0xffffffffU)
      return malformed_config(fmt::format("all ones at {:#x}, where an extended capability should be", at));
    if ((header & 0xffffU) == capability && (!is_it || is_it(at))) return std::optional(at);
    const std::size_t next = (header >> 20U) & 0xffcU;  // the lower two bits are reserved
    if (next == 0) break;
    if (next < kConventionalBytes)
      return malformed_config(fmt::format("an extended capability at {:#x}, before their list", next));
    at = next;
  }
  return std::optional<std::size_t>();
}

}  // namespace ferry::vfio
