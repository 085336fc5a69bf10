// SPDX-License-Identifier: Apache-2.0
#include "common/text/text.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

namespace ferry {

std::string counted(std::size_t count, std::string_view one, std::string_view many) {
  std::string out = std::to_string(count) + " ";
  out += count == 1 || many.empty() ? one : many;
  if (count != 1 && many.empty()) out += "s";
  return out;
}

std::optional<std::uint32_t> number_at_start(std::string_view text) {
  std::uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return std::nullopt;
  return value;
}

std::string_view trimmed(std::string_view text, std::string_view blanks) {
  const auto first = text.find_first_not_of(blanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(blanks) - first + 1);
}

std::string_view beginning_of(std::string_view text, std::size_t most) {
  if (text.size() <= most) return text;
  while (most > 0 && (static_cast<unsigned char>(text[most]) & 0xc0U) == 0x80) --most;
  return text.substr(0, most);
}

std::string lower(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(),
                         [](char c) { return is_upper(c) ? static_cast<char>(c - 'A' + 'a') : c; });
  return out;
}

std::vector<std::string> words_between(std::string_view text, char separator) {
  std::vector<std::string> out;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(separator), text.size());
    out.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

namespace {

// Edit distance with three rows; two swapped letters count as one edit, since that is a common slip.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1);
  std::vector<std::size_t> previous(b.size() + 1);
  std::vector<std::size_t> current(b.size() + 1);
  std::iota(previous.begin(), previous.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    current[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = previous[j] + (a[i] == b[j] ? 0U : 1U);
      current[j + 1] = std::min({replaced, previous[j + 1] + 1, current[j] + 1});
      if (i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j])
        current[j + 1] = std::min(current[j + 1], before[j - 1] + 1);
    }
    std::swap(before, previous);
    std::swap(previous, current);
  }
  return previous[b.size()];
}

}  // namespace

std::string suggest(std::string_view word, std::span<const std::string> candidates) {
  constexpr std::size_t kLongest = 256;  // names are shorter, and the cost is quadratic
  if (word.size() > kLongest) return {};
  const std::string letters = lower(word);
  std::string best;
  std::size_t nearest = std::max<std::size_t>(1, letters.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    if (candidate.size() > kLongest) continue;
    const std::size_t d = distance(letters, lower(candidate));
    if (d < nearest) {
      nearest = d;
      best = candidate;
    }
  }
  return best;
}

std::string did_you_mean(std::string_view word, std::span<const std::string> candidates) {
  const std::string meant = suggest(word, candidates);
  return meant.empty() ? std::string() : "; did you mean '" + meant + "'?";
}

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
