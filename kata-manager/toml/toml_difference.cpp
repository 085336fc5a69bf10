// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/toml/toml_difference.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace ferry::kata {
namespace {

bool is_empty(const TomlValue& value) {
  if (const auto* table = value.table())
    return std::ranges::all_of(*table, [](const auto& entry) { return is_empty(entry.second); });
  if (const auto* list = value.array()) return list->empty();
  if (const auto* text = value.string()) return text->empty();
  if (const auto* truth = value.boolean()) return !*truth;
  if (const auto* number = value.integer()) return *number == 0;
  return std::get<double>(value.value) == 0;
}

std::string shown(const TomlValue* value) {
  if (value == nullptr) return "absent";
  if (value->table() != nullptr) return "a table";
  if (const auto* list = value->array()) {
    std::vector<std::string> parts;
    parts.reserve(list->size());
    for (const TomlValue& element : *list) parts.push_back(shown(&element));
    return fmt::format("[{}]", fmt::join(parts, ", "));
  }
  if (const auto* text = value->string()) return fmt::format("\"{}\"", *text);
  if (const auto* truth = value->boolean()) return *truth ? "true" : "false";
  if (const auto* number = value->integer()) return std::to_string(*number);
  return fmt::format("{}", std::get<double>(value->value));
}

const TomlValue* at(const TomlTable& table, const std::string& key) {
  const auto found = table.find(key);
  return found == table.end() || is_empty(found->second) ? nullptr : &found->second;
}

}  // namespace

std::optional<std::string> first_difference(const TomlTable& is, const TomlTable& would_be,
                                            const std::string& path) {
  std::set<std::string> keys;
  for (const auto& [key, value] : is) keys.insert(key);
  for (const auto& [key, value] : would_be) keys.insert(key);
  for (const std::string& key : keys) {
    const TomlValue* a = at(is, key);
    const TomlValue* b = at(would_be, key);
    if (a == b || (a != nullptr && b != nullptr && *a == *b)) continue;
    const std::string here = fmt::format("{}.{}", path, key);
    static const TomlTable none;
    const TomlTable* left = a == nullptr ? &none : a->table();
    const TomlTable* right = b == nullptr ? &none : b->table();
    if (left == nullptr || right == nullptr || (a == nullptr && b == nullptr))
      return fmt::format("{}: {}, and would be {}", here, shown(a), shown(b));
    if (auto inner = first_difference(*left, *right, here)) return inner;
  }
  return std::nullopt;
}

}  // namespace ferry::kata
