// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace ferry {

/// Where the first byte above ASCII stands that is in no string and no comment, where TOML has none. toml++
/// 3.3 takes some of them for blanks, and does not say of the others that they need quotes. The byte-order
/// mark in front is passed over. Of a text that is no TOML anyway it may be another one.
std::optional<std::size_t> stray_character(std::string_view text);

}  // namespace ferry
