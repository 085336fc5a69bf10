// SPDX-License-Identifier: Apache-2.0
// The output device of text for people: its width and its colours.
#pragma once

#include <cstddef>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/process/this_process.h"

namespace ferry::cli {

enum class Tint { plain, heading, dim, good, attention, bad };

/// The choice of `--color`. By default a terminal has colours unless NO_COLOR is set.
enum class ColourChoice { terminal, always, never };

struct TextOutput {
  std::optional<std::size_t> columns = {};  ///< absent: no limit, as in a file
  std::optional<std::size_t> rows = {};     ///< absent: no limit
  bool colour = false;
};

/// The output for an open file. COLUMNS overrides the terminal's own width and is the only width of a file
/// that is no terminal. A terminal has colours unless NO_COLOR is set to anything or TERM is "dumb"
/// (no-color.org).
TextOutput text_output_of(std::FILE* out, const Environment& environment = process_environment(),
                          ColourChoice colours = ColourChoice::terminal);

/// `text` in the tint's colour, if the output has colours.
std::string tinted(const TextOutput& output, Tint tint, std::string_view text);

/// The columns that UTF-8 text takes, counted in characters: Ferry prints no wide ones.
std::size_t width_of(std::string_view text);
/// `text` filled with blanks up to `width` columns.
std::string padded(std::string text, std::size_t width);
/// The bytes of a word wider than `width` columns that its first line takes. That line ends after a character
/// that ends parts of names, if one fits. It has at least one character.
std::size_t end_of_part(std::string_view word, std::size_t width);
/// `text` broken at blanks into lines of at most `width` columns. A longer word starts a line of its own and
/// is broken, too. `width` absent: one line.
std::vector<std::string> wrapped(std::string_view text, std::optional<std::size_t> width);
/// wrapped() as one text in which each line ends with a line break.
std::string wrapped_lines(std::string_view text, std::optional<std::size_t> width);
/// The same for a text in a colour, whose control characters are made visible.
std::string tinted_lines(const TextOutput& output, Tint tint, std::string_view text);
/// The width that is left of `output` behind `start` columns, at least `least`; absent: no limit.
std::optional<std::size_t> width_behind(const TextOutput& output, std::size_t start, std::size_t least);

}  // namespace ferry::cli
