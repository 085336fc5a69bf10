// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace ferry {

/// Where the first byte above ASCII stands that is in no string and no comment, where TOML has none. Asked
/// before toml++ 3.3 sees a text: it looks such a character up in a table of blanks whose gaps it takes to be
/// unreachable, so that what it does then is undefined. The byte-order mark in front is passed over.
std::optional<std::size_t> stray_character(std::string_view text);

}  // namespace ferry
