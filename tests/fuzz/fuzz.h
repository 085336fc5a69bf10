// SPDX-License-Identifier: Apache-2.0
// A fuzz target is one file that defines one_input(); entry.cpp makes it libFuzzer's. Whatever text it is
// given, the parser must answer: no crash, no exception, no sanitizer's complaint, and the properties hold
// that the target names.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <utility>

namespace ferry::fuzz {

void one_input(std::string_view text);

/// A property that does not hold is a crash to libFuzzer.
inline void require(bool holds, const char* property) {
  if (holds) return;
  static_cast<void>(std::fprintf(stderr, "PROPERTY BROKEN: %s\n", property));
  std::abort();
}

/// The first line and the rest: for parsers that take two texts.
inline std::pair<std::string_view, std::string_view> first_line(std::string_view text) {
  const auto end = text.find('\n');
  if (end == std::string_view::npos) return {text, {}};
  return {text.substr(0, end), text.substr(end + 1)};
}

}  // namespace ferry::fuzz
