// SPDX-License-Identifier: Apache-2.0
// The capabilities in a function's config space, whose bytes are given as a text.
// ABI: PCI Local Bus 3.0, 6.7 (capabilities); PCI Express Base 5.0, 7.6.3 (extended capabilities).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>

#include "common/result.h"

namespace ferry::vfio {

/// All of config space without the extended capabilities. Other users than root see 64 bytes of it.
inline constexpr std::size_t kConventionalBytes = 256;

/// Little-endian numbers at an offset, which must be inside.
inline std::uint8_t byte_at(std::string_view config, std::size_t at) {
  return static_cast<std::uint8_t>(config[at]);
}
inline std::uint16_t word_at(std::string_view config, std::size_t at) {
  return static_cast<std::uint16_t>(byte_at(config, at) | (byte_at(config, at + 1) << 8U));
}
inline std::uint32_t dword_at(std::string_view config, std::size_t at) {
  return word_at(config, at) | (static_cast<std::uint32_t>(word_at(config, at + 2)) << 16U);
}

/// The error of config space that cannot be read: Errc::malformed_host, "config space: " and `what`.
tl::unexpected<Error> malformed_config(std::string_view what);

/// The offset of a capability; absent: not in the list. Needs kConventionalBytes. Errc::malformed_host: the
/// list leaves config space or has a loop.
Result<std::optional<std::size_t>> find_capability(std::string_view config, std::uint8_t capability);

/// The offset of the first extended capability for which `is_it` holds; without `is_it` the first of its
/// kind. Config space that ends before them has none. Errors as above.
Result<std::optional<std::size_t>> find_extended(std::string_view config, std::uint16_t capability,
                                                 const std::function<bool(std::size_t at)>& is_it = {});

}  // namespace ferry::vfio
