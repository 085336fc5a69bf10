// SPDX-License-Identifier: Apache-2.0
#include "common/suggest.h"

#include <algorithm>
#include <cctype>
#include <numeric>
#include <vector>

namespace ferry {
namespace {

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

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
      if (i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j]) {
        current[j + 1] = std::min(current[j + 1], before[j - 1] + 1);
      }
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
  const std::string wanted = lower(word);
  std::string best;
  std::size_t nearest = std::max<std::size_t>(1, wanted.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    if (candidate.size() > kLongest) continue;
    const std::size_t d = distance(wanted, lower(candidate));
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

}  // namespace ferry
