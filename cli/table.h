// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace ferry {

/// Rows under a heading, for people. Each column is as wide as its widest cell. A cell with line breaks takes
/// several lines; an empty one shows "-".
class Table {
 public:
  explicit Table(std::vector<std::string> heading);
  void add(std::vector<std::string> row);  ///< as many cells as the heading
  /// The table at its full width, or at most `columns` wide as far as words permit. Cells of the widest
  /// columns are broken into lines, and nothing is left out.
  std::string text(std::optional<std::size_t> columns = {}) const;
  /// The columns of the full table.
  std::size_t width() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace ferry
