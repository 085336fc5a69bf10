// SPDX-License-Identifier: Apache-2.0
#include "common/text/visible_text.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>

#include <fmt/format.h>

namespace ferry {
namespace {

constexpr char32_t kDelete = 0x7f;

unsigned char byte_at(std::string_view text, std::size_t at) {
  return static_cast<unsigned char>(text[at]);
}

// Length of a UTF-8 character by its first byte; 0: no character begins so.
std::size_t length_of(unsigned char first) {
  if (first < 0x80) return 1;
  if (first >= 0xc2 && first < 0xe0) return 2;
  if (first >= 0xe0 && first < 0xf0) return 3;
  if (first >= 0xf0 && first < 0xf5) return 4;
  return 0;
}

/// False for a second byte that makes a longer form of a character than it needs, a surrogate, or a number
/// beyond U+10FFFF.
bool may_follow(unsigned char first, unsigned char second) {
  switch (first) {
    case 0xe0:
      return second >= 0xa0;
    case 0xed:
      return second < 0xa0;
    case 0xf0:
      return second >= 0x90;
    case 0xf4:
      return second < 0x90;
    default:
      return true;
  }
}

/// Length in bytes of the character at the front; 0: no UTF-8 begins there.
std::size_t character_at(std::string_view text) {
  const std::size_t length = length_of(byte_at(text, 0));
  if (length == 0 || length > text.size()) return 0;
  if (length > 1 && !may_follow(byte_at(text, 0), byte_at(text, 1))) return 0;
  for (std::size_t i = 1; i < length; ++i)
    if ((byte_at(text, i) & 0xc0U) != 0x80U) return 0;
  return length;
}

char32_t code_point(std::string_view character) {
  char32_t out = byte_at(character, 0);
  if (character.size() > 1) out &= 0xffU >> (character.size() + 1);
  for (std::size_t i = 1; i < character.size(); ++i) out = out << 6U | (byte_at(character, i) & 0x3fU);
  return out;
}

/// Terminals take some of U+0080 to U+009F like ESC sequences. Unicode's directional marks, embeddings,
/// overrides and isolates show the text around them in another order.
bool is_control(char32_t point) {
  return point < 0x20 || (point >= kDelete && point < 0xa0) || point == 0x061c || point == 0x200e ||
         point == 0x200f || (point >= 0x202a && point <= 0x202e) || (point >= 0x2066 && point <= 0x2069);
}

/// `stays(text)`, for a text that begins with a control character: how many bytes at the front are kept.
template <typename Stays>
std::string escaped(std::string_view text, Stays stays) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    std::size_t taken = character_at(text);
    if (taken > 0 && !is_control(code_point(text.substr(0, taken)))) {
      out.append(text, 0, taken);
    } else if (const std::size_t kept = stays(text); kept > 0) {
      out.append(text, 0, taken = kept);
    } else {
      taken = std::max<std::size_t>(taken, 1);
      for (std::size_t i = 0; i < taken; ++i) out += fmt::format("\\x{:02x}", byte_at(text, i));
    }
    text.remove_prefix(taken);
  }
  return out;
}

std::size_t layout_at(std::string_view text) {
  if (text.front() == '\n' || text.front() == '\t') return 1;
  return text.starts_with("\r\n") ? 2 : 0;  // line end of a file in a difference
}

// tinted() writes these codes, which can do nothing but colour.
std::size_t layout_or_colour_at(std::string_view text) {
  if (const std::size_t layout = layout_at(text); layout > 0) return layout;
  constexpr std::array<std::string_view, 6> kColours = {"\033[0m",  "\033[1m",  "\033[2m",
                                                        "\033[31m", "\033[32m", "\033[33m"};
  const auto* const colour =
      std::ranges::find_if(kColours, [&](std::string_view code) { return text.starts_with(code); });
  return colour == kColours.end() ? 0 : colour->size();
}

}  // namespace

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const std::size_t length = character_at(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

std::string visible_line(std::string_view text) {
  return escaped(text, [](std::string_view) { return std::size_t{0}; });
}

std::string visible_lines(std::string_view text, Colours colours) {
  return escaped(text, colours == Colours::kept ? layout_or_colour_at : layout_at);
}

std::string visible_json(std::string_view json) {
  std::string out;
  out.reserve(json.size());
  while (!json.empty()) {
    const std::size_t length = character_at(json);
    const std::string_view character = json.substr(0, std::max<std::size_t>(length, 1));
    const char32_t point = code_point(character);
    if (length == 0) {
      out += "\\ufffd";
    } else if (point >= kDelete && is_control(point)) {
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<std::uint32_t>(point));
    } else {
      out += character;
    }
    json.remove_prefix(character.size());
  }
  return out;
}

}  // namespace ferry
