// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <charconv>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace ferry {

/// A number of things for people: "1 warning", "0 switches". Without `many` the plural is `one` with an "s".
std::string counted(std::size_t count, std::string_view one, std::string_view many = {});

/// The number that the whole text is, in digits of `base`: no sign (of an unsigned Number), prefix or blank.
/// Absent: another character, or a number beyond Number. `base` is for integers only.
template <typename Number = std::uint32_t>
std::optional<Number> whole_number(std::string_view text, std::same_as<int> auto... base) {
  Number value{};
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value, base...);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

/// The decimal number at the start of a text.
std::optional<std::uint32_t> number_at_start(std::string_view text);

std::string_view trimmed(std::string_view text, std::string_view blanks = " \t\r\n");

/// At most `most` bytes from the beginning of a text in UTF-8, not cut within a character.
std::string_view beginning_of(std::string_view text, std::size_t most);

// Classes of ASCII characters, whatever the process's locale is.
constexpr bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
constexpr bool is_lower(char c) {
  return c >= 'a' && c <= 'z';
}
constexpr bool is_upper(char c) {
  return c >= 'A' && c <= 'Z';
}
constexpr bool is_letter(char c) {
  return is_lower(c) || is_upper(c);
}
constexpr bool is_alphanumeric(char c) {
  return is_letter(c) || is_digit(c);
}

/// The text with its ASCII letters in lower case; all others stay.
std::string lower(std::string_view text);

/// A number for names and records: FNV-1a, the same in every process and version. It keeps no attacker out.
constexpr std::uint32_t stable_hash_32(std::string_view text) {
  std::uint32_t hash = 0x811c9dc5U;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x01000193U;
  return hash;
}
constexpr std::uint64_t stable_hash_64(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  return hash;
}

/// The words between separators, such as the NUL of /proc/PID/cmdline. A separator at the end begins no word;
/// two in a row have an empty word between them.
std::vector<std::string> words_between(std::string_view text, char separator);

/// The candidate that a mistyped word most likely meant, or "" if none is near (at most a third of its
/// letters differ, letter case aside).
std::string suggest(std::string_view word, std::span<const std::string> candidates);

/// suggest() as the end of a message: "; did you mean 'vgpu-devices'?", or "".
std::string did_you_mean(std::string_view word, std::span<const std::string> candidates);

/// The difference of two texts as `diff -u` shows it, for people and patch(1). Absent: no file. There is one
/// hunk, from the first line that differs to the last, with three lines around. Empty: nothing differs.
std::string unified_diff(const std::string& path, const std::optional<std::string>& before,
                         const std::optional<std::string>& after);

}  // namespace ferry
