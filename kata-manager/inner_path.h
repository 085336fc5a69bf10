// SPDX-License-Identifier: Apache-2.0
// Names that registries and archives give to files: they come from outside and may say anything.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"

namespace ferry {

/// The parts of a path that stays below where it is put: relative, without "..", "." and doubled slashes (one
/// at the end and "./" in front are let be), each part a name that a file can have and a person can read.
/// Empty for the folder itself. Errc::refused: why not.
Result<std::vector<std::string>> inner_path(std::string_view path);

/// Whether a link in the folder `at` (its parts, none of them a link) leads to something below the same top:
/// as many ".." as there are parts at most, all of them in front. Others may go through a link on the way,
/// and where ".." leads from there nobody can say.
bool link_stays_inside(const std::vector<std::string>& at, std::string_view target);

}  // namespace ferry
