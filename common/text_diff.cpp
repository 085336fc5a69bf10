// SPDX-License-Identifier: Apache-2.0
#include "common/text_diff.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include <fmt/format.h>

namespace ferry {
namespace {

constexpr std::size_t kAround = 3;

/// Lines with their line ends.
std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> out;
  while (!text.empty()) {
    const auto size = std::min(text.find('\n'), text.size() - 1) + 1;
    out.push_back(text.substr(0, size));
    text.remove_prefix(size);
  }
  return out;
}

void add(std::string& out, char mark, std::string_view line) {
  out += mark;
  out += line;
  if (!line.ends_with('\n')) out += "\n\\ No newline at end of file\n";
}

// ABI: the unified format numbers an empty side by the line in front of it.
std::string range(std::size_t first, std::size_t count) {
  if (count == 1) return fmt::format("{}", first + 1);
  return fmt::format("{},{}", count == 0 ? first : first + 1, count);
}

}  // namespace

std::string unified_diff(const std::string& path, const std::optional<std::string>& before,
                         const std::optional<std::string>& after) {
  if (before == after) return "";
  const auto old_lines = lines_of(before ? std::string_view(*before) : "");
  const auto new_lines = lines_of(after ? std::string_view(*after) : "");
  const auto [old_first, new_first] = std::ranges::mismatch(old_lines, new_lines);
  const auto first = static_cast<std::size_t>(old_first - old_lines.begin());
  std::size_t same_end = 0;
  const std::size_t most = std::min(old_lines.size(), new_lines.size()) - first;
  while (same_end < most &&
         old_lines[old_lines.size() - 1 - same_end] == new_lines[new_lines.size() - 1 - same_end])
    ++same_end;
  const std::size_t begin = first - std::min(first, kAround);
  const std::size_t behind = std::min(same_end, kAround);
  const std::size_t old_end = old_lines.size() - same_end;
  const std::size_t new_end = new_lines.size() - same_end;
  std::string out =
      fmt::format("--- {}\n+++ {}\n@@ -{} +{} @@\n", before ? path : "/dev/null", after ? path : "/dev/null",
                  range(begin, old_end + behind - begin), range(begin, new_end + behind - begin));
  for (std::size_t i = begin; i < first; ++i) add(out, ' ', old_lines[i]);
  for (std::size_t i = first; i < old_end; ++i) add(out, '-', old_lines[i]);
  for (std::size_t i = first; i < new_end; ++i) add(out, '+', new_lines[i]);
  for (std::size_t i = old_end; i < old_end + behind; ++i) add(out, ' ', old_lines[i]);
  return out;
}

}  // namespace ferry
