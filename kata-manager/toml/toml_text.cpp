// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/toml/toml_text.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

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
  const auto is_plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
  };
  return !key.empty() && std::ranges::all_of(key, is_plain) ? key : quoted_text(key);
}

std::string value_text(const TomlValue& value);

std::string list_text(const TomlArray& list) {
  std::vector<std::string> parts;
  parts.reserve(list.size());
  for (const TomlValue& element : list) parts.push_back(value_text(element));
  return fmt::format("[{}]", fmt::join(parts, ", "));
}

std::string value_text(const TomlValue& value) {
  if (const auto* text = value.string()) return quoted_text(*text);
  if (const auto* truth = value.boolean()) return *truth ? "true" : "false";
  if (const auto* number = value.integer()) return std::to_string(*number);
  if (const auto* list = value.array()) return list_text(*list);
  if (const auto* table = value.table()) {
    std::vector<std::string> parts;
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
  for (const auto& [key, value] : table) {
    if (value.table() == nullptr) out += key_text(key) + " = " + value_text(value) + "\n";
  }
  for (const auto& [key, value] : table) {
    if (value.table() == nullptr) continue;
    std::vector<std::string> inner = path;
    inner.push_back(key);
    out += toml_text(inner, *value.table());
  }
  return out;
}

}  // namespace ferry::kata
