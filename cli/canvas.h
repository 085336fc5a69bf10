// SPDX-License-Identifier: Apache-2.0
// What text for people is drawn on: how wide it is, whether it shows colours, whether it has lines to draw
// with.
#pragma once

#include <cstddef>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/environment.h"

namespace ferry {

enum class Tint { plain, heading, dim, good, attention, bad };

struct Canvas {
  std::optional<std::size_t> columns = {};  ///< absent: as wide as it takes, as into a file
  std::optional<std::size_t> rows = {};     ///< absent: without an end
  bool colour = false;
  bool unicode = false;  ///< else ASCII alone
};

/// That of an open file. COLUMNS counts before the terminal's own width; a file that is no terminal has none
/// without it. Colours: on a terminal, unless NO_COLOR is set to anything or TERM is "dumb" (no-color.org).
/// Lines by the locale's character set.
Canvas canvas_of(std::FILE* out, const Environment& environment = process_environment());

/// `text` in a colour, where there are any.
std::string tinted(const Canvas& canvas, Tint tint, std::string_view text);

/// How many columns UTF-8 text takes: its characters. (None of ours are wide.)
std::size_t width_of(std::string_view text);
/// At most `width` columns of it, with a mark where something is cut off.
std::string cut_to(const Canvas& canvas, std::string_view text, std::size_t width);
/// Filled up with blanks.
std::string padded(std::string text, std::size_t width);
/// How many bytes of a word that is wider than `width` columns stand on its first line: up to a character
/// that parts of names end in, where there is one. At least one character.
std::size_t end_of_part(std::string_view word, std::size_t width);
/// Broken at blanks into lines of at most `width` columns; a longer word begins a line of its own, and is
/// broken too.
std::vector<std::string> wrapped(std::string_view text, std::size_t width);

}  // namespace ferry
