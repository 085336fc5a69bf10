// SPDX-License-Identifier: Apache-2.0
#include "cli/output/table.h"

#include <algorithm>
#include <cassert>
#include <numeric>
#include <string_view>

#include "cli/output/text_output.h"
#include "common/text/text.h"

namespace ferry::cli {
namespace {

constexpr std::size_t kGap = 2;
// Names of Kubernetes objects are long. A narrower column is not readable.
constexpr std::size_t kLeastWidth = 12;

// The position after a blank, or else one where a word may be broken.
std::size_t break_in(std::string_view line, std::size_t width) {
  const auto blank = line.substr(0, width).find_last_of(' ');
  return blank != std::string_view::npos && blank > 0 ? blank + 1 : end_of_part(line, width);
}

std::vector<std::string> lines_of(const std::string& cell, std::size_t width) {
  std::vector<std::string> out;
  for (const std::string& line : words_between(cell, '\n')) {
    std::string_view rest = line;
    while (rest.size() > width) {
      const std::size_t end = break_in(rest, width);
      const std::string_view part = rest.substr(0, end);
      out.emplace_back(part.substr(0, part.find_last_not_of(' ') + 1));
      rest.remove_prefix(end);
    }
    out.emplace_back(rest);
  }
  return out;
}

std::vector<std::size_t> natural_widths(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths(rows.front().size());
  for (const auto& row : rows) {
    for (std::size_t c = 0; c < row.size(); ++c) {
      for (const std::string& line : words_between(row[c], '\n'))
        widths[c] = std::max(widths[c], line.size());
    }
  }
  return widths;
}

std::size_t total(const std::vector<std::size_t>& widths) {
  return std::accumulate(widths.begin(), widths.end(), kGap * (widths.size() - 1));
}

std::vector<std::size_t> fitted(std::vector<std::size_t> widths, std::optional<std::size_t> columns) {
  if (!columns) return widths;
  while (total(widths) > *columns) {
    const auto widest = std::ranges::max_element(widths);
    if (*widest <= kLeastWidth) break;
    --*widest;
  }
  return widths;
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

std::size_t Table::width() const {
  return total(natural_widths(rows_));
}

std::string Table::text(std::optional<std::size_t> columns) const {
  const std::vector<std::size_t> widths = fitted(natural_widths(rows_), columns);
  std::string out;
  for (const auto& row : rows_) {
    std::vector<std::vector<std::string>> cells;
    std::size_t height = 0;
    for (std::size_t c = 0; c < row.size(); ++c) {
      cells.push_back(lines_of(row[c], widths[c]));
      height = std::max(height, cells.back().size());
    }
    for (std::size_t l = 0; l < height; ++l) {
      std::string line;
      for (std::size_t c = 0; c < cells.size(); ++c) {
        std::string part = l < cells[c].size() ? cells[c][l] : std::string();
        part.resize(widths[c] + kGap, ' ');
        line += part;
      }
      line.erase(line.find_last_not_of(' ') + 1);
      out += line + "\n";
    }
  }
  return out;
}

}  // namespace ferry::cli
