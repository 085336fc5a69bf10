// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace ferry {

/// Where the first byte above ASCII stands that is in no string and no comment, where TOML has none: toml++
/// does not say of it that it needs quotes. The byte-order mark in front is passed over. In a text that is no
/// TOML anyway, what stands in a string may be taken to stand in none.
std::optional<std::size_t> stray_character(std::string_view text);

}  // namespace ferry
