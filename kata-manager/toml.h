// SPDX-License-Identifier: Apache-2.0
// TOML as plain values: what a file says, not how it says it. Nothing is ever written from these: a file is
// edited as text (text_block.h).
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "common/result.h"

namespace ferry {

struct TomlValue;
using TomlArray = std::vector<TomlValue>;
using TomlTable = std::map<std::string, TomlValue, std::less<>>;

/// A date or a time is its text: no program configured here has any.
struct TomlValue {
  std::variant<bool, std::int64_t, double, std::string, TomlArray, TomlTable> value;
  bool operator==(const TomlValue&) const = default;

  /// nullptr: it is of another type.
  const bool* boolean() const { return std::get_if<bool>(&value); }
  const std::int64_t* integer() const { return std::get_if<std::int64_t>(&value); }
  const std::string* string() const { return std::get_if<std::string>(&value); }
  const TomlArray* array() const { return std::get_if<TomlArray>(&value); }
  const TomlTable* table() const { return std::get_if<TomlTable>(&value); }
  TomlTable* table() { return std::get_if<TomlTable>(&value); }
};

/// Errc::invalid_config: "FILE:LINE:COLUMN: what". A byte-order mark in front is passed over.
Result<TomlTable> parse_toml(std::string_view text, const std::string& file);

/// A table that is written in one line, `key = {a = 1}`: TOML lets nothing be added to it elsewhere.
struct InlineTable {
  std::size_t depth = 0;  ///< how many of the keys lead to it
  std::uint32_t line = 0;
};
/// The first one on a path of keys; absent: none is, or the text is no TOML.
std::optional<InlineTable> inline_table_on(std::string_view text, const std::vector<std::string>& keys);

/// The line of the value at a path of keys; absent: there is none, or the text is no TOML.
std::optional<std::uint32_t> line_of(std::string_view text, const std::vector<std::string>& keys);

/// The value at a path of keys; nullptr: there is none, or something on the way is no table.
const TomlValue* find(const TomlTable& root, std::initializer_list<std::string_view> keys);

/// The table at a path of keys, made where it is missing; what is no table on the way is replaced.
TomlTable& table_at(TomlTable& root, std::initializer_list<std::string_view> keys);

/// Tables are merged by key, however deep; of anything else the later one counts.
void merge_over(TomlTable& base, const TomlTable& later);

}  // namespace ferry
