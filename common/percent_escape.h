// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace ferry {

/// For a part of a URL's path or query: all but the letters, digits and "-._~" of RFC 3986 by their bytes,
/// as "%2F".
std::string percent_escaped(std::string_view text);

}  // namespace ferry
