// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "common/result.h"

namespace ferry::kata {

/// Parses foreign JSON. A key that an object has twice is an error. Errors have `code`, and begin with the
/// given name.
Result<nlohmann::json> parse_strict_json(std::string_view text, const std::string& what, Errc code);

}  // namespace ferry::kata
