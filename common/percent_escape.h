// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace ferry {

/// Escapes all bytes except letters, digits and "-._~" (RFC 3986) as in "%2F", for a part of a URL's path or
/// query.
std::string percent_escaped(std::string_view text);

}  // namespace ferry
