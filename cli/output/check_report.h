// SPDX-License-Identifier: Apache-2.0
// The results of a doctor's checks as JSON and as text.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "cli/output/text_output.h"
#include "common/check.h"

namespace ferry::cli {

/// The checks of one subject, in their order.
struct CheckGroup {
  std::string heading;  ///< "0000:65:00.0 AD102 [GeForce RTX 4090]"
  std::vector<Check> checks;
};

std::size_t count_of(const std::vector<CheckGroup>& groups, Verdict verdict);

nlohmann::json to_json(const Check& check);

/// The verdict about `what` ("passthrough", "node gpu-1") in the first line, then the groups. A passed check
/// is one line, and only with `all`. Any other verdict has its reason and its fix below it.
std::string checks_text(std::string_view what, const std::vector<CheckGroup>& groups, bool all,
                        const TextOutput& output);

}  // namespace ferry::cli
