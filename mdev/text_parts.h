// SPDX-License-Identifier: Apache-2.0
// Inside this room: helpers that parse drivers' texts.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/text/text.h"

namespace ferry::mdev {

/// The decimal number at the start of a text.
inline std::optional<std::uint32_t> number_at_start(std::string_view text) {
  std::uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return std::nullopt;
  return value;
}

/// A text without the white space at both ends.
inline std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n";
  const auto first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

/// VgpuType::short_name for the name that a driver gives.
inline std::string last_word(std::string_view name) {
  return std::string(name.substr(name.find_last_of(' ') + 1));  // npos + 1 is 0
}

}  // namespace ferry::mdev
