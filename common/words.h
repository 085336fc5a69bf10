// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ferry {

/// The words of a text with one of these characters between each two, such as the NUL of /proc/PID/cmdline.
/// One at the end ends the last word, and begins none; two in a row have an empty word between them.
std::vector<std::string> words_between(std::string_view text, char separator);

}  // namespace ferry
