// SPDX-License-Identifier: Apache-2.0
#include "cli/table.h"

#include <algorithm>
#include <cassert>

namespace ferry {
namespace {

std::vector<std::string> lines_of(const std::string& cell) {
  std::vector<std::string> lines;
  std::size_t start = 0;
  while (start <= cell.size()) {
    const auto end = std::min(cell.find('\n', start), cell.size());
    lines.push_back(cell.substr(start, end - start));
    start = end + 1;
  }
  return lines;
}

}  // namespace

Table::Table(std::vector<std::string> heading) {
  rows_.push_back(std::move(heading));
}

void Table::add(std::vector<std::string> row) {
  assert(row.size() == rows_.front().size());
  for (std::string& cell : row) {
    if (cell.empty()) cell = "-";
  }
  rows_.push_back(std::move(row));
}

std::string Table::text() const {
  const std::size_t columns = rows_.front().size();
  std::vector<std::size_t> widths(columns);
  for (const auto& row : rows_) {
    for (std::size_t c = 0; c < columns; ++c) {
      for (const std::string& line : lines_of(row[c])) widths[c] = std::max(widths[c], line.size());
    }
  }
  std::string out;
  for (const auto& row : rows_) {
    std::vector<std::vector<std::string>> cells;
    std::size_t height = 0;
    for (const std::string& cell : row) {
      cells.push_back(lines_of(cell));
      height = std::max(height, cells.back().size());
    }
    for (std::size_t l = 0; l < height; ++l) {
      std::string line;
      for (std::size_t c = 0; c < columns; ++c) {
        std::string part = l < cells[c].size() ? cells[c][l] : std::string();
        part.resize(widths[c] + 2, ' ');
        line += part;
      }
      line.erase(line.find_last_not_of(' ') + 1);
      out += line + "\n";
    }
  }
  return out;
}

}  // namespace ferry
