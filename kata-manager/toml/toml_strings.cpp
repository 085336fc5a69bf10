// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/toml/toml_strings.h"

#include <algorithm>
#include <cctype>
#include <string>

namespace ferry::kata {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
constexpr std::size_t kLongMark = 3;  // length of the mark of a multi-line string

bool is_long(std::string_view rest) {
  return rest.size() >= kLongMark && rest[1] == rest[0] && rest[2] == rest[0];
}

/// The end of the string that begins at `at`; without a closing mark, the end of its line or of the text.
std::size_t behind_string(std::string_view text, std::size_t at) {
  const char mark = text[at];
  const bool over_lines = is_long(text.substr(at));
  for (at += over_lines ? kLongMark : 1; at < text.size(); ++at) {
    if (text[at] == '\\' && mark == '"') {
      ++at;
    } else if (text[at] == '\n' && !over_lines) {
      return at;
    } else if (text[at] == mark && (!over_lines || is_long(text.substr(at)))) {
      // Up to two more marks are the last characters of a long string.
      return over_lines ? std::min(text.find_first_not_of(mark, at), text.size()) : at + 1;
    }
  }
  return text.size();
}

bool is_bare(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-' || c == '+';
}

/// Tracks a text character by character, to know where a string may begin: a quote inside a value begins
/// none.
class Place {
 public:
  void step(char c) {
    if (c == ' ' || c == '\t' || c == '\r') return;
    if (c == '\n') return begin_line();
    if (c == '=' || c == ',') {
      begun_ = false;
      in_value_ = c == '=' || (!open_.empty() && open_.back() == '[');
    } else if (c == '[' || c == '{') {
      open(c);
    } else if (c == ']' || c == '}') {
      if (!open_.empty()) open_.pop_back();
      begun_ = true;
      in_value_ = true;
    } else {
      begun_ = true;
    }
    last_ = c;
  }
  void begin_line() {
    last_ = '\n';
    if (!open_.empty()) return;
    in_value_ = false;
    begun_ = false;
  }
  /// In a key each part may be a string; in a value, only the whole.
  bool may_begin_string() const { return in_value_ ? !begun_ : !is_bare(last_); }

 private:
  void open(char c) {
    const bool header = c == '[' && !in_value_ && open_.empty();
    begun_ = false;
    if (header) {
      last_ = c;
      return;  // a table's header: keys up to the end of the line
    }
    open_ += c;
    in_value_ = c == '[';
  }

  std::string open_;       // open brackets of values
  bool in_value_ = false;  // false: in a key
  bool begun_ = false;     // the value has begun
  char last_ = '\n';       // last character that is no blank
};

}  // namespace

std::optional<std::size_t> stray_character(std::string_view text) {
  constexpr unsigned char kFirstAboveAscii = 0x80;
  Place place;
  std::size_t at = text.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0;
  while (at < text.size()) {
    const char c = text[at];
    if (c == '#') {
      at = std::min(text.find('\n', at), text.size());
    } else if ((c == '"' || c == '\'') && place.may_begin_string()) {
      at = behind_string(text, at);
      place.step('"');
    } else if (static_cast<unsigned char>(c) >= kFirstAboveAscii) {
      return at;
    } else {
      place.step(c);
      ++at;
    }
  }
  return std::nullopt;
}

}  // namespace ferry::kata
