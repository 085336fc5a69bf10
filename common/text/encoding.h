// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace ferry {

/// Decodes base64 (RFC 4648, section 4), padded or not, without its line ends. Absent: not base64.
std::optional<std::string> from_base64(std::string_view text);

/// Encodes bytes as base64, padded, on one line.
std::string to_base64(std::string_view bytes);

/// Escapes all bytes except letters, digits and "-._~" (RFC 3986) as in "%2F", for a part of a URL's path or
/// query.
std::string percent_escaped(std::string_view text);

}  // namespace ferry
