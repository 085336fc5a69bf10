// SPDX-License-Identifier: Apache-2.0
#include "common/text/encoding.h"

#include <fmt/format.h>

#include "common/text/text.h"

namespace ferry {
namespace {

constexpr unsigned kBitsOfALetter = 6;
constexpr unsigned kBitsOfAByte = 8;
constexpr std::size_t kLettersOfAGroup = 4;

constexpr std::string_view kLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

bool ends_a_line(char c) {
  return c == '\n' || c == '\r';
}

}  // namespace

std::optional<std::string> from_base64(std::string_view text) {
  while (!text.empty() && ends_a_line(text.back())) text.remove_suffix(1);
  std::size_t padding = 0;
  for (; padding < 2 && text.ends_with('='); ++padding) text.remove_suffix(1);
  std::size_t letters = 0;
  std::string out;
  unsigned bits = 0;
  unsigned count = 0;
  for (const char c : text) {
    if (ends_a_line(c)) continue;
    const auto value = kLetters.find(c);
    if (value == std::string_view::npos) return std::nullopt;
    ++letters;
    bits = (bits << kBitsOfALetter) | static_cast<unsigned>(value);
    count += kBitsOfALetter;
    if (count < kBitsOfAByte) continue;
    count -= kBitsOfAByte;
    out.push_back(static_cast<char>((bits >> count) & 0xFFU));
  }
  if (count >= kBitsOfALetter) return std::nullopt;  // a letter too many
  if (padding > 0 && (letters + padding) % kLettersOfAGroup != 0) return std::nullopt;
  return out;
}

std::string to_base64(std::string_view bytes) {
  constexpr unsigned kOfALetter = (1U << kBitsOfALetter) - 1;
  std::string out;
  unsigned bits = 0;
  unsigned count = 0;
  for (const char c : bytes) {
    bits = (bits << kBitsOfAByte) | static_cast<unsigned char>(c);
    for (count += kBitsOfAByte; count >= kBitsOfALetter; count -= kBitsOfALetter)
      out.push_back(kLetters[(bits >> (count - kBitsOfALetter)) & kOfALetter]);
  }
  if (count > 0) out.push_back(kLetters[(bits << (kBitsOfALetter - count)) & kOfALetter]);
  while (out.size() % kLettersOfAGroup != 0) out.push_back('=');
  return out;
}

std::string percent_escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool plain = is_alphanumeric(c) || c == '-' || c == '.' || c == '_' || c == '~';
    if (plain) {
      out.push_back(c);
    } else {
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return out;
}

}  // namespace ferry
