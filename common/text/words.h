// SPDX-License-Identifier: Apache-2.0
// Tables of the words for an enumeration's values.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <string_view>
#include <utility>

namespace ferry {

template <typename Value, std::size_t N>
using Words = std::array<std::pair<std::string_view, Value>, N>;

/// The first word for `value`; `otherwise` if the table has none.
template <typename Value, std::size_t N>
constexpr std::string_view word_for(const Words<Value, N>& words, Value value,
                                    std::string_view otherwise = {}) {
  const auto* const found = std::ranges::find(words, value, &std::pair<std::string_view, Value>::second);
  return found == words.end() ? otherwise : found->first;
}

/// Absent for another word.
template <typename Value, std::size_t N>
constexpr std::optional<Value> value_for(const Words<Value, N>& words, std::string_view word) {
  const auto* const found = std::ranges::find(words, word, &std::pair<std::string_view, Value>::first);
  return found == words.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace ferry
