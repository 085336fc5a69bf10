// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

namespace ferry {

/// What an edit changes, as `diff -u` shows it, for people and for patch(1). Absent: there is no file. One
/// hunk, from the first line that differs to the last, with three lines around; empty when nothing differs.
std::string unified_diff(const std::string& path, const std::optional<std::string>& before,
                         const std::optional<std::string>& after);

}  // namespace ferry
