// SPDX-License-Identifier: Apache-2.0
#include "cli/output/text_output.h"

#include <algorithm>
#include <charconv>
#include <sys/ioctl.h>
#include <unistd.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/text/visible_text.h"
#include "common/text/words.h"

namespace ferry::cli {
namespace {

bool continues(char byte) {
  return (static_cast<unsigned char>(byte) & 0xc0U) == 0x80U;
}

std::optional<std::size_t> columns_of(const winsize& size, bool terminal, const Environment& environment) {
  constexpr std::size_t kUsual = 80;
  const std::string said = value_of(environment, "COLUMNS");
  std::size_t columns = 0;
  const char* const end = said.data() + said.size();
  if (std::from_chars(said.data(), end, columns).ptr == end && columns > 0) return columns;
  if (!terminal) return std::nullopt;
  return size.ws_col > 0 ? size.ws_col : kUsual;
}

}  // namespace

TextOutput text_output_of(std::FILE* out, const Environment& environment, ColourChoice colours) {
  const int fd = ::fileno(out);
  const bool terminal = fd >= 0 && ::isatty(fd) == 1;
  winsize size{};
  if (!terminal || ::ioctl(fd, TIOCGWINSZ, &size) != 0) size = {};
  const bool usual =
      terminal && value_of(environment, "NO_COLOR").empty() && value_of(environment, "TERM") != "dumb";
  return {.columns = columns_of(size, terminal, environment),
          .rows = size.ws_row > 0 ? std::optional<std::size_t>(size.ws_row) : std::nullopt,
          .colour = colours == ColourChoice::always || (colours == ColourChoice::terminal && usual)};
}

std::string tinted(const TextOutput& output, Tint tint, std::string_view text) {
  constexpr Words<Tint, 6> kCodes = {{{"", Tint::plain},
                                      {"1", Tint::heading},
                                      {"2", Tint::dim},
                                      {"32", Tint::good},
                                      {"33", Tint::attention},
                                      {"31", Tint::bad}}};
  std::string shown = visible_line(text);
  if (!output.colour || tint == Tint::plain || shown.empty()) return shown;
  return fmt::format("\033[{}m{}\033[0m", word_for(kCodes, tint), shown);
}

std::size_t width_of(std::string_view text) {
  return static_cast<std::size_t>(std::ranges::count_if(text, [](char byte) { return !continues(byte); }));
}

std::string padded(std::string text, std::size_t width) {
  const std::size_t has = width_of(text);
  if (has < width) text.append(width - has, ' ');
  return text;
}

std::size_t end_of_part(std::string_view word, std::size_t width) {
  std::size_t end = 0;  // behind the characters that fit
  for (std::size_t taken = 0; end < word.size(); ++end) {
    if (continues(word[end])) continue;
    if (taken == std::max<std::size_t>(width, 1)) break;
    ++taken;
  }
  const auto found = word.substr(0, end).find_last_of("/._-");
  return found != std::string_view::npos && found > 0 ? found + 1 : end;
}

std::vector<std::string> wrapped(std::string_view text, std::optional<std::size_t> width) {
  if (!width) return {std::string(text)};
  std::vector<std::string> lines(1);
  while (!text.empty()) {
    const auto end = std::min(text.find(' '), text.size());
    std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (lines.back().empty()) {
      lines.back() = word;
    } else if (width_of(lines.back()) + 1 + width_of(word) <= *width) {
      lines.back().append(" ").append(word);
      continue;
    } else {
      lines.emplace_back(word);
    }
    while (width_of(word) > *width) {
      const std::size_t part = end_of_part(word, *width);
      if (part == word.size()) break;  // a single character wider than `width`
      lines.back().resize(part);
      word.remove_prefix(part);
      lines.emplace_back(word);
    }
  }
  return lines;
}

std::string wrapped_lines(std::string_view text, std::optional<std::size_t> width) {
  return fmt::format("{}\n", fmt::join(wrapped(text, width), "\n"));
}

std::string tinted_lines(const TextOutput& output, Tint tint, std::string_view text) {
  std::string out;
  for (const std::string& line : wrapped(text, output.columns)) out += tinted(output, tint, line) + "\n";
  return out;
}

std::optional<std::size_t> width_behind(const TextOutput& output, std::size_t start, std::size_t least) {
  if (!output.columns) return std::nullopt;
  return std::max(*output.columns, start + least) - start;
}

}  // namespace ferry::cli
