// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "cli/output/text_output.h"

namespace ferry::cli {

/// Rows under a heading, for people. Each column is as wide as its widest cell. A cell with line breaks takes
/// several lines; an empty one shows "-".
class Table {
 public:
  explicit Table(std::vector<std::string> heading);                 ///< without any text it is not printed
  void add(std::vector<std::string> row, Tint tint = Tint::plain);  ///< as many cells as the heading
  /// The colour of one cell of the last row.
  void tint(std::size_t column, Tint tint);
  /// A note on the last row. The first one stands beside its row where the output is wide enough. All others
  /// stand below it.
  void note(std::string text, Tint tint = Tint::plain);
  /// The table at its full width, or as narrow as the output as far as words permit. Cells of the widest
  /// columns are broken into lines, and nothing is left out.
  std::string text(const TextOutput& output) const;
  std::string text(std::optional<std::size_t> columns = {}) const;
  /// The columns of the full table without notes.
  std::size_t width() const;

 private:
  struct Part {
    std::string text;
    Tint tint = Tint::plain;
  };
  struct Row {
    std::vector<Part> cells;
    std::vector<Part> notes;
  };
  std::vector<std::size_t> natural_widths() const;
  static void draw(const Row& row, const std::vector<std::size_t>& widths, const TextOutput& output,
                   std::string& out);

  std::vector<Row> rows_;
};

}  // namespace ferry::cli
