// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

namespace ferry {

/// The difference of two texts as `diff -u` shows it, for people and patch(1). Absent: no file. There is one
/// hunk, from the first line that differs to the last, with three lines around. Empty: nothing differs.
std::string unified_diff(const std::string& path, const std::optional<std::string>& before,
                         const std::optional<std::string>& after);

}  // namespace ferry
