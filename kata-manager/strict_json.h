// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "common/result.h"

namespace ferry {

/// JSON of others, in which a key that an object has twice is an error and not one of the two. What cannot be
/// read gets `code`, and `what` in front.
Result<nlohmann::json> parse_strict_json(std::string_view text, const std::string& what, Errc code);

}  // namespace ferry
