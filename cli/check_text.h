// SPDX-License-Identifier: Apache-2.0
// Answers of a doctor, in both forms.
#pragma once

#include <cstddef>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "common/check.h"

namespace ferry {

nlohmann::json to_json(const Check& check);

/// A pass is one line; what is not says why it matters and what to do, each on a line of its own. `id_width`:
/// of the column of ids.
std::string lines_of(const Check& check, std::size_t id_width);

}  // namespace ferry
