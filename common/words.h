// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ferry {

/// The words between separators, such as the NUL of /proc/PID/cmdline. A separator at the end begins no word;
/// two in a row have an empty word between them.
std::vector<std::string> words_between(std::string_view text, char separator);

}  // namespace ferry
