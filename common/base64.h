// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace ferry {

/// Decodes base64 (RFC 4648, section 4), padded or not, without its line ends. Absent: not base64.
std::optional<std::string> from_base64(std::string_view text);

}  // namespace ferry
