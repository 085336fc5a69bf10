// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace ferry {

/// Gives each closed standard stream a descriptor on which every use fails: else the next opened file would
/// get its number and the output. Runs by itself before main() and all static storage, in every program that
/// calls it.
void guard_standard_streams();

/// Writes to standard error; failures (a full disk, closed) are ignored, so that the work goes on. Control
/// characters of terminals are escaped (visible_text.h).
void say_to_stderr(std::string_view text);

/// Does the same as say_to_stderr(), but leaves the text out if standard error would block: a terminal
/// stopped by Ctrl-S, a full pipe. Takes no lock of stdio.
void say_to_stderr_if_it_is_taken(std::string_view text);

template <typename... Values>
void print_to_stderr(fmt::format_string<Values...> text, Values&&... values) {
  say_to_stderr(fmt::format(text, std::forward<Values>(values)...));
}

}  // namespace ferry
