// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace ferry {

/// Rows under a heading, each column as wide as its widest cell, for people. A cell with line breaks takes
/// several lines; an empty one shows "-".
class Table {
 public:
  explicit Table(std::vector<std::string> heading);
  void add(std::vector<std::string> row);  ///< as many cells as the heading
  /// As wide as it takes; with `columns` at most that wide as far as words go: cells of the widest columns
  /// are broken into lines, and nothing is left out.
  std::string text(std::optional<std::size_t> columns = {}) const;
  /// Columns that it takes.
  std::size_t width() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace ferry
