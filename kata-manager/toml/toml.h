// SPDX-License-Identifier: Apache-2.0
// TOML as plain values, without its layout. Ferry edits a file as text (config_files.h), not through these
// values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "common/result.h"

namespace ferry::kata {

struct TomlValue;
using TomlArray = std::vector<TomlValue>;
using TomlTable = std::map<std::string, TomlValue, std::less<>>;

/// Dates and times are kept as text: no program configured here uses them.
struct TomlValue {
  std::variant<bool, std::int64_t, double, std::string, TomlArray, TomlTable> value;
  bool operator==(const TomlValue&) const = default;

  /// nullptr: another type.
  const bool* boolean() const { return std::get_if<bool>(&value); }
  const std::int64_t* integer() const { return std::get_if<std::int64_t>(&value); }
  const std::string* string() const { return std::get_if<std::string>(&value); }
  const TomlArray* array() const { return std::get_if<TomlArray>(&value); }
  const TomlTable* table() const { return std::get_if<TomlTable>(&value); }
  TomlTable* table() { return std::get_if<TomlTable>(&value); }
};

/// Errc::invalid_config: "FILE:LINE:COLUMN: reason". A byte-order mark is skipped. Tables and lists may be
/// nested in 64 levels.
Result<TomlTable> parse_toml(std::string_view text, const std::string& file);

/// An inline table, `key = {a = 1}`. TOML forbids additions to it elsewhere.
struct InlineTable {
  std::size_t depth = 0;  ///< number of keys that lead to it
  std::uint32_t line = 0;
};
/// The first inline table on a path of keys; absent: none, or the text is not TOML.
std::optional<InlineTable> inline_table_on(std::string_view text, const std::vector<std::string>& keys);

/// The line of the value at a path of keys; absent: no value, or the text is not TOML.
std::optional<std::uint32_t> line_of(std::string_view text, const std::vector<std::string>& keys);

/// The value at a path of keys; nullptr: no value, or a key on the way is no table.
const TomlValue* find(const TomlTable& root, std::initializer_list<std::string_view> keys);

/// The table at a path of keys; nullptr: no value, or another type.
const TomlTable* find_table(const TomlTable& root, std::initializer_list<std::string_view> keys);

/// The string at a path of keys; empty: no value, or another type.
std::string text_at(const TomlTable& root, std::initializer_list<std::string_view> keys);

/// The strings of the list at a path of keys; another element is an empty string. Empty: no list.
std::vector<std::string> texts_at(const TomlTable& root, std::initializer_list<std::string_view> keys);

/// The whole number at a path of keys; absent: no value, or another type.
std::optional<std::int64_t> integer_at(const TomlTable& root, std::initializer_list<std::string_view> keys);

/// True: the value at a path of keys is `true`.
bool is_true_at(const TomlTable& root, std::initializer_list<std::string_view> keys);

/// The table at a path of keys. Missing tables are made; other values on the way are replaced.
TomlTable& table_at(TomlTable& root, std::initializer_list<std::string_view> keys);

/// Merges tables by key at every depth. Any other value of `later` replaces the earlier value.
void merge_over(TomlTable& base, const TomlTable& later);

/// The first difference of two tables: "plugins.a.b: true, and would be false". Empty, false and 0 equal
/// absent, as for a program that decodes into variables. Absent: no difference.
std::optional<std::string> first_difference(const TomlTable& is, const TomlTable& would_be,
                                            const std::string& path);

// Writes values as TOML, for files or parts of files that only Ferry edits.

/// Keys joined as in a header: `plugins."io.containerd.cri.v1.runtime".containerd`.
std::string dotted(const std::vector<std::string>& keys);

/// A table under its header, followed by its inner tables. `path`: the header's keys; empty: the table is a
/// whole file.
std::string toml_text(const std::vector<std::string>& path, const TomlTable& table);

// Removes tables from a TOML file's text. All other bytes stay.

/// The keys of a table: {"plugins", "io.containerd.grpc.v1.cri", "containerd", "runtimes", "kata"}.
using TomlPath = std::vector<std::string>;

/// The text without these tables and their inner tables. `file` names the text in errors. Errors:
/// Errc::refused: a table has no header of its own (an inline table, dotted keys), so its lines cannot be
/// separated; the error names the file and the tables. Errc::invalid_config: the text is not TOML.
Result<std::string> without_tables(std::string_view text, const std::string& file,
                                   std::span<const TomlPath> paths);

}  // namespace ferry::kata
