// SPDX-License-Identifier: Apache-2.0
// Checks names of files from registries and archives, which are untrusted.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"

namespace ferry::kata {

/// The parts of a path that stays in its folder: relative, without "..", "." and doubled slashes ("./" in
/// front and a slash at the end are accepted), each part a printable file name. Empty: the folder itself.
/// Errc::refused has the reason.
Result<std::vector<std::string>> inner_path(std::string_view path);

/// True if a link in the folder `at` (its parts, none a link) stays below the same top. Its ".." must be in
/// front, and no more than the parts of `at`: after another name, ".." could follow a link to anywhere.
bool link_stays_inside(const std::vector<std::string>& at, std::string_view target);

}  // namespace ferry::kata
