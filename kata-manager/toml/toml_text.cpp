// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/text/text.h"
#include "kata-manager/toml/toml.h"

namespace ferry::kata {
namespace {

std::string quoted_text(std::string_view text) {
  constexpr unsigned char kFirstPrintable = 0x20;
  constexpr unsigned char kDelete = 0x7f;
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < kFirstPrintable || byte == kDelete) {
      out += fmt::format("\\u{:04X}", byte);
    } else {
      out += c;
    }
  }
  return out + '"';
}

std::string key_text(const std::string& key) {
  const auto is_plain = [](char c) { return is_alphanumeric(c) || c == '-' || c == '_'; };
  return !key.empty() && std::ranges::all_of(key, is_plain) ? key : quoted_text(key);
}

std::string value_text(const TomlValue& value) {
  if (const auto* text = value.string()) return quoted_text(*text);
  if (const auto* truth = value.boolean()) return *truth ? "true" : "false";
  if (const auto* number = value.integer()) return std::to_string(*number);
  std::vector<std::string> parts;
  if (const auto* list = value.array()) {
    for (const TomlValue& element : *list) parts.push_back(value_text(element));
    return fmt::format("[{}]", fmt::join(parts, ", "));
  }
  if (const auto* table = value.table()) {
    for (const auto& [key, inner] : *table) parts.push_back(key_text(key) + " = " + value_text(inner));
    return fmt::format("{{{}}}", fmt::join(parts, ", "));
  }
  return fmt::format("{:#}", std::get<double>(value.value));
}

}  // namespace

std::string dotted(const std::vector<std::string>& keys) {
  std::string out;
  for (const std::string& key : keys) out += (out.empty() ? "" : ".") + key_text(key);
  return out;
}

std::string toml_text(const std::vector<std::string>& path, const TomlTable& table) {
  std::string out = path.empty() ? "" : fmt::format("[{}]\n", dotted(path));
  for (const auto& [key, value] : table)
    if (value.table() == nullptr) out += key_text(key) + " = " + value_text(value) + "\n";
  for (const auto& [key, value] : table) {
    if (value.table() == nullptr) continue;
    std::vector<std::string> inner = path;
    inner.push_back(key);
    out += toml_text(inner, *value.table());
  }
  return out;
}

namespace {

constexpr std::string_view kBlanks = " \t\r\n";

/// The keys of a header line; absent: the line is no header.
std::optional<TomlPath> header_keys(std::string_view line) {
  const auto first = line.find_first_not_of(kBlanks);
  if (first == std::string_view::npos || line[first] != '[') return std::nullopt;
  const auto parsed = parse_toml(line, "");
  if (!parsed) return std::nullopt;
  TomlPath keys;
  for (const TomlTable* table = &*parsed; table != nullptr && !table->empty();
       table = table->begin()->second.table())
    keys.push_back(table->begin()->first);
  return keys;
}

/// Removes the value at a path; false: there is none.
bool erase(TomlTable& root, const TomlPath& path) {
  TomlTable* table = &root;
  for (std::size_t i = 0; i + 1 < path.size(); ++i) {
    const auto found = table->find(path[i]);
    if (found == table->end() || found->second.table() == nullptr) return false;
    table = found->second.table();
  }
  return table->erase(path.back()) > 0;
}

/// Removes tables that exist only by headers of removed tables.
void prune(TomlTable& table) {
  for (auto it = table.begin(); it != table.end();) {
    TomlTable* inner = it->second.table();
    if (inner != nullptr) prune(*inner);
    it = inner != nullptr && inner->empty() ? table.erase(it) : std::next(it);
  }
}

}  // namespace

Result<std::string> without_tables(std::string_view text, const std::string& file,
                                   std::span<const TomlPath> paths) {
  auto expected = parse_toml(text, file);
  if (!expected) return fail(std::move(expected).error());
  for (const TomlPath& path : paths) erase(*expected, path);
  std::string out;
  std::string skipped;  // may belong to the next table
  bool removing = false;
  for (std::size_t at = 0; at < text.size();) {
    const auto end = std::min(text.find('\n', at), text.size() - 1) + 1;
    const std::string_view line = text.substr(at, end - at);
    at = end;
    if (const auto keys = header_keys(line)) {
      removing = std::ranges::any_of(paths, [&](const TomlPath& path) {
        return keys->size() >= path.size() && std::equal(path.begin(), path.end(), keys->begin());
      });
      out += std::exchange(skipped, {});
    }
    const auto first = line.find_first_not_of(kBlanks);
    const bool is_blank_or_comment = first == std::string_view::npos || line[first] == '#';
    if (!removing) {
      out += line;
    } else if (is_blank_or_comment) {
      skipped += line;
    } else {
      skipped.clear();
    }
  }
  out += skipped;
  // Proves that only these tables are gone.
  auto left = parse_toml(out, file);
  prune(*expected);
  if (left) prune(*left);
  if (left && *left == *expected) return out;
  std::string names;
  for (const TomlPath& path : paths) names += (names.empty() ? "[" : ", [") + dotted(path) + "]";
  return fail(
      Errc::refused,
      fmt::format("{}: {} cannot be removed: not each of them stands under a header of its own", file, names),
      "remove these tables from the file by hand, then run this again");
}

}  // namespace ferry::kata
