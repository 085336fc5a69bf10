// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace ferry {

/// Standard streams that are closed get a descriptor on which every use fails: else the first file that is
/// opened has their number, and what is said goes into it. Is done by itself before main() and all static
/// storage, in every program that has this called at all.
void guard_standard_streams();

/// To standard error, and lost where that takes nothing (a full disk, closed): what is being done goes on.
/// What a terminal would obey is told instead (visible_text.h).
void say_to_stderr(std::string_view text);

template <typename... Values>
void print_to_stderr(fmt::format_string<Values...> text, Values&&... values) {
  say_to_stderr(fmt::format(text, std::forward<Values>(values)...));
}

}  // namespace ferry
