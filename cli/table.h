// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace ferry {

/// Rows under a heading, each column as wide as its widest cell, for people. A cell with line breaks takes
/// several lines; an empty one shows "-".
class Table {
 public:
  explicit Table(std::vector<std::string> heading);
  void add(std::vector<std::string> row);  ///< as many cells as the heading
  std::string text() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace ferry
