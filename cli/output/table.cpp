// SPDX-License-Identifier: Apache-2.0
#include "cli/output/table.h"

#include <algorithm>
#include <cassert>
#include <numeric>
#include <utility>

#include "common/text/text.h"

namespace ferry::cli {
namespace {

constexpr std::size_t kGap = 2;
// Names of Kubernetes objects are long. A narrower column is not readable.
constexpr std::size_t kLeastWidth = 12;
constexpr std::size_t kIndent = 4;      // of a note below its row
constexpr std::size_t kLeastNote = 24;  // its least width

std::size_t total(const std::vector<std::size_t>& widths) {
  return std::accumulate(widths.begin(), widths.end(), kGap * (widths.size() - 1));
}

std::vector<std::string> lines_of(const std::string& cell, std::size_t width) {
  std::vector<std::string> out;
  for (const std::string& line : words_between(cell, '\n')) {
    // Blanks at the start of a line that fits are an indent.
    const auto parts = width_of(line) <= width ? std::vector{line} : wrapped(line, width);
    out.insert(out.end(), parts.begin(), parts.end());
  }
  return out;
}

}  // namespace

Table::Table(std::vector<std::string> heading) {
  Row& row = rows_.emplace_back();
  for (std::string& text : heading) row.cells.push_back({.text = std::move(text), .tint = Tint::heading});
}

void Table::add(std::vector<std::string> row, Tint tint) {
  assert(row.size() == rows_.front().cells.size());
  Row& added = rows_.emplace_back();
  for (std::string& cell : row)
    added.cells.push_back({.text = cell.empty() ? "-" : std::move(cell), .tint = tint});
}

void Table::tint(std::size_t column, Tint tint) {
  rows_.back().cells[column].tint = tint;
}

void Table::note(std::string text, Tint tint) {
  rows_.back().notes.push_back({.text = std::move(text), .tint = tint});
}

std::vector<std::size_t> Table::natural_widths() const {
  std::vector<std::size_t> widths(rows_.front().cells.size());
  for (const Row& row : rows_)
    for (std::size_t c = 0; c < row.cells.size(); ++c)
      for (const std::string& line : words_between(row.cells[c].text, '\n'))
        widths[c] = std::max(widths[c], width_of(line));
  return widths;
}

std::size_t Table::width() const {
  return total(natural_widths());
}

void Table::draw(const Row& row, const std::vector<std::size_t>& widths, const TextOutput& output,
                 std::string& out) {
  std::vector<std::string> lines;
  std::vector<std::size_t> ends;  // the columns that each line takes
  const auto put = [&](std::size_t line, std::size_t start, const Part& part) {
    if (line == lines.size()) {
      lines.emplace_back();
      ends.push_back(0);
    }
    if (part.text.find_first_not_of(' ') == std::string::npos) return;
    lines[line] += std::string(start - ends[line], ' ') + tinted(output, part.tint, part.text);
    ends[line] = start + width_of(part.text);
  };
  std::size_t start = 0;
  for (std::size_t c = 0; c < widths.size(); ++c) {
    std::size_t line = 0;
    for (const std::string& text : lines_of(row.cells[c].text, widths[c]))
      put(line++, start, {.text = text, .tint = row.cells[c].tint});
    start += widths[c] + kGap;
  }
  auto note = row.notes.begin();
  if (note != row.notes.end() && (!output.columns || start + width_of(note->text) <= *output.columns))
    put(0, start, *note++);
  for (const std::string& line : lines) out += line + "\n";
  for (; note != row.notes.end(); ++note)
    for (const std::string& line : wrapped(note->text, width_behind(output, kIndent, kLeastNote)))
      out += std::string(kIndent, ' ') + tinted(output, note->tint, line) + "\n";
}

std::string Table::text(const TextOutput& output) const {
  std::vector<std::size_t> widths = natural_widths();
  while (output.columns && total(widths) > *output.columns) {
    const auto widest = std::ranges::max_element(widths);
    if (*widest <= kLeastWidth) break;
    --*widest;
  }

  std::string out;
  for (const Row& row : rows_) {
    const bool is_heading = &row == &rows_.front();
    if (is_heading && std::ranges::all_of(row.cells, &std::string::empty, &Part::text)) continue;
    draw(row, widths, output, out);
  }
  return out;
}

std::string Table::text(std::optional<std::size_t> columns) const {
  return text(TextOutput{.columns = columns});
}

}  // namespace ferry::cli
