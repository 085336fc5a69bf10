// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace ferry::kata {

/// The place of the first byte above ASCII outside of strings and comments, which TOML forbids; toml++ does
/// not report that the character needs quotes. A leading byte-order mark is skipped. In a text that is not
/// TOML, a byte in a string may be reported, too.
std::optional<std::size_t> stray_character(std::string_view text);

}  // namespace ferry::kata
