// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace ferry {

/// The bytes of a text in base64 (RFC 4648, section 4), padded or not, as programs write it; line ends in it
/// do not count. Absent: it is none.
std::optional<std::string> from_base64(std::string_view text);

}  // namespace ferry
