// SPDX-License-Identifier: Apache-2.0
// The results of a doctor's checks as JSON and as text.
#pragma once

#include <cstddef>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "common/check.h"

namespace ferry {

nlohmann::json to_json(const Check& check);

/// A passed check is one line. Any other verdict adds its reason and its fix, each on a line of its own.
/// `id_width`: columns of the longest id.
std::string lines_of(const Check& check, std::size_t id_width);

}  // namespace ferry
