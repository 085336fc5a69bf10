// SPDX-License-Identifier: Apache-2.0
#include "host/node_state.h"

#include <algorithm>
#include <array>
#include <utility>

namespace ferry::host {
namespace {

constexpr std::array<std::pair<std::string_view, NodePhase>, 6> kPhases = {
    {{"nothing_wanted", NodePhase::nothing_wanted},
     {"as_wanted", NodePhase::as_wanted},
     {"withdrawing", NodePhase::withdrawing},
     {"changing", NodePhase::changing},
     {"refused", NodePhase::refused},
     {"failed", NodePhase::failed}}};

constexpr std::array<std::pair<std::string_view, Standing>, 5> kStandings = {
    {{"as_wanted", Standing::as_wanted},
     {"refused", Standing::refused},
     {"failed", Standing::failed},
     {"waiting", Standing::waiting},
     {"left_alone", Standing::left_alone}}};

template <typename Table, typename Value>
std::string_view word_for(const Table& table, Value value) {
  return std::ranges::find(table, value, &Table::value_type::second)->first;
}

template <typename Value, typename Table>
std::optional<Value> value_for(const Table& table, std::string_view word) {
  const auto* const found = std::ranges::find(table, word, &Table::value_type::first);
  if (found == table.end()) return std::nullopt;
  return found->second;
}

}  // namespace

std::string_view text(NodePhase phase) {
  return word_for(kPhases, phase);
}
std::optional<NodePhase> parse_node_phase(std::string_view word) {
  return value_for<NodePhase>(kPhases, word);
}
std::string_view text(Standing standing) {
  return word_for(kStandings, standing);
}
std::optional<Standing> parse_standing(std::string_view word) {
  return value_for<Standing>(kStandings, word);
}

}  // namespace ferry::host
