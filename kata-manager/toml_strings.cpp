// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/toml_strings.h"

#include <algorithm>

namespace ferry {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
constexpr std::size_t kLongMark = 3;  // of a string over several lines

bool is_long(std::string_view rest) {
  return rest.size() >= kLongMark && rest[1] == rest[0] && rest[2] == rest[0];
}

/// Behind the string that begins at `at`; one that does not end stops at the end of its line, or of the text.
std::size_t behind_string(std::string_view text, std::size_t at) {
  const char mark = text[at];
  const bool over_lines = is_long(text.substr(at));
  for (at += over_lines ? kLongMark : 1; at < text.size(); ++at) {
    if (text[at] == '\\' && mark == '"') {
      ++at;
    } else if (text[at] == '\n' && !over_lines) {
      return at;
    } else if (text[at] == mark && (!over_lines || is_long(text.substr(at)))) {
      // Up to two marks more are the last characters of a long string.
      return over_lines ? std::min(text.find_first_not_of(mark, at), text.size()) : at + 1;
    }
  }
  return text.size();
}

}  // namespace

std::optional<std::size_t> stray_character(std::string_view text) {
  constexpr unsigned char kFirstAboveAscii = 0x80;
  std::size_t at = text.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0;
  while (at < text.size()) {
    const char c = text[at];
    if (c == '#') {
      at = std::min(text.find('\n', at), text.size());
    } else if (c == '"' || c == '\'') {
      at = behind_string(text, at);
    } else if (static_cast<unsigned char>(c) >= kFirstAboveAscii) {
      return at;
    } else {
      ++at;
    }
  }
  return std::nullopt;
}

}  // namespace ferry
