// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/toml.h"

#include <algorithm>
#include <sstream>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "kata-manager/toml_strings.h"

namespace {

// What toml++ 3.3 takes for granted of a text that it has not looked at whole ("[.a]" breaks it) is asked in
// every build, and is an error of the text.
constexpr void must_hold(bool holds) {
  if (!holds) throw std::logic_error("it is not understood");
}

}  // namespace

#undef NDEBUG
// NOLINTNEXTLINE(cppcoreguidelines-macro-usage): the library asks for one.
#define TOML_ASSERT(expression) must_hold(static_cast<bool>(expression))
#include <toml++/toml.h>

namespace ferry {
namespace {

TomlTable as_values(const toml::table& table);

TomlValue as_value(const toml::node& node) {
  if (const auto* table = node.as_table()) return {as_values(*table)};
  if (const auto* array = node.as_array()) {
    TomlArray out;
    out.reserve(array->size());
    for (const toml::node& element : *array) out.push_back(as_value(element));
    return {std::move(out)};
  }
  if (const auto* text = node.as_string()) return {text->get()};
  if (const auto* number = node.as_integer()) return {number->get()};
  if (const auto* number = node.as_floating_point()) return {number->get()};
  if (const auto* truth = node.as_boolean()) return {truth->get()};
  std::ostringstream out;
  if (const auto* date = node.as_date()) out << *date;
  if (const auto* time = node.as_time()) out << *time;
  if (const auto* both = node.as_date_time()) out << *both;
  return {out.str()};
}

TomlTable as_values(const toml::table& table) {
  TomlTable out;
  for (const auto& [key, node] : table) out.emplace(key.str(), as_value(node));
  return out;
}

}  // namespace

Result<TomlTable> parse_toml(std::string_view text, const std::string& file) {
  if (const auto stray = stray_character(text)) {
    const std::string_view before = text.substr(0, *stray);
    const auto line = std::ranges::count(before, '\n') + 1;
    const auto column = *stray - (before.find_last_of('\n') + 1) + 1;  // npos + 1 is 0
    return fail(Errc::invalid_config,
                fmt::format("{}:{}:{}: a character above ASCII needs quotes", file, line, column));
  }
  try {
    return as_values(toml::parse(text));
  } catch (const toml::parse_error& error) {
    const toml::source_position at = error.source().begin;
    return fail(Errc::invalid_config,
                fmt::format("{}:{}:{}: {}", file, at.line, at.column, error.description()));
  } catch (const std::logic_error& error) {
    return fail(Errc::invalid_config, fmt::format("{}: {}", file, error.what()));
  }
}

std::optional<InlineTable> inline_table_on(std::string_view text, const std::vector<std::string>& keys) {
  if (stray_character(text)) return std::nullopt;
  try {
    const toml::table root = toml::parse(text);
    const toml::table* table = &root;
    for (std::size_t depth = 1; depth <= keys.size(); ++depth) {
      const toml::node* const node = table->get(keys[depth - 1]);
      table = node == nullptr ? nullptr : node->as_table();
      if (table == nullptr) return std::nullopt;
      if (table->is_inline()) return InlineTable{.depth = depth, .line = table->source().begin.line};
    }
  } catch (const toml::parse_error&) {
    return std::nullopt;
  } catch (const std::logic_error&) {
    return std::nullopt;
  }
  return std::nullopt;
}

const TomlValue* find(const TomlTable& root, std::initializer_list<std::string_view> keys) {
  const TomlTable* table = &root;
  const TomlValue* value = nullptr;
  for (const std::string_view key : keys) {
    if (table == nullptr) return nullptr;
    const auto found = table->find(key);
    if (found == table->end()) return nullptr;
    value = &found->second;
    table = value->table();
  }
  return value;
}

TomlTable& table_at(TomlTable& root, std::initializer_list<std::string_view> keys) {
  TomlTable* table = &root;
  for (const std::string_view key : keys) {
    TomlValue& value = table->try_emplace(std::string(key), TomlValue{TomlTable{}}).first->second;
    if (value.table() == nullptr) value.value = TomlTable{};
    table = value.table();
  }
  return *table;
}

void merge_over(TomlTable& base, const TomlTable& later) {
  for (const auto& [key, value] : later) {
    const auto [there, is_new] = base.try_emplace(key, value);
    if (is_new) continue;
    if (there->second.table() != nullptr && value.table() != nullptr) {
      merge_over(*there->second.table(), *value.table());
    } else {
      there->second = value;
    }
  }
}

}  // namespace ferry
