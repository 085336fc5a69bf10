// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/classes/class_parts.h"

#include <algorithm>
#include <charconv>
#include <climits>

#include <fmt/format.h>

namespace ferry::kata {
namespace {

using Kind = ConfigNode::Kind;

Result<> read_value(const ConfigReader& reader, const ConfigNode& node, const std::string& path,
                    TomlValue& into) {
  switch (node.kind) {
    case Kind::null:
      return reader.refuse(node, path, "expected a value, found nothing", "leave the key out, or write \"\"");
    case Kind::map: {
      auto table = toml_of(reader, node, path);
      if (!table) return fail(std::move(table).error());
      into.value = std::move(*table);
      return {};
    }
    case Kind::list: {
      TomlArray out;
      for (const ConfigNode& item : node.items) {
        TomlValue& value = out.emplace_back();
        if (auto r = read_value(reader, item, fmt::format("{}[{}]", path, out.size() - 1), value); !r)
          return r;
      }
      into.value = std::move(out);
      return {};
    }
    case Kind::scalar:
      break;
  }

  double real = 0;
  const char* const end_of_text = node.text.data() + node.text.size();
  const auto [end, error] = std::from_chars(node.text.data(), end_of_text, real, std::chars_format::fixed);
  const bool is_real = node.text.find('.') != std::string::npos && error == std::errc() && end == end_of_text;
  if (node.is_string()) {
    into.value = node.text;
  } else if (node.text == "true" || node.text == "false") {
    into.value = node.text == "true";
  } else if (const auto number = plain_number(node)) {
    into.value = *number;
  } else if (is_real) {
    into.value = real;
  } else {
    return reader.refuse(node, path, fmt::format("readers of YAML do not agree on what {} is", node.text),
                         fmt::format("put it in quotes: \"{}\"", node.text));
  }
  return {};
}

}  // namespace

Result<TomlTable> toml_of(const ConfigReader& reader, const ConfigNode& map, const std::string& path) {
  TomlTable out;
  for (const ConfigMember& member : map.members) {
    TomlValue& value = out[member.key.text];
    if (auto r = read_value(reader, member.value, path + "." + member.key.text, value); !r)
      return fail(std::move(r).error());
  }
  return out;
}

bool is_host_path(std::string_view text) {
  if (!text.starts_with('/') || text.size() >= PATH_MAX) return false;
  const bool plain =
      std::ranges::none_of(text, [](char c) { return static_cast<unsigned char>(c) < ' ' || c == '\x7f'; });
  return plain && std::ranges::none_of(std::filesystem::path(text),
                                       [](const std::filesystem::path& part) { return part == ".."; });
}

std::string ClassPart::key(std::string_view name) const {
  return path.empty() ? std::string(name) : fmt::format("{}.{}", path, name);
}

const ConfigNode* ClassPart::find(std::string_view name) const {
  const ConfigMember* member = map->find(name);
  return member == nullptr ? nullptr : &member->value;
}

void ClassPart::blame(Error error) const {
  if (!*fault) *fault = std::move(error);
}

void ClassPart::refuse(const ConfigNode& at, std::string_view name, const std::string& what,
                       std::string hint) const {
  blame(reader->refuse(at, key(name), what, std::move(hint)).value());
}

void ClassPart::check_keys(const std::vector<std::string>& nvidias,
                           const std::vector<std::string>& ours) const {
  std::vector<std::string> known = nvidias;
  if (!is_nvidias) known.insert(known.end(), ours.begin(), ours.end());
  for (const ConfigMember& member : map->members) {
    const std::string& name = member.key.text;
    if (std::ranges::find(known, name) != known.end()) continue;
    if (is_nvidias && reader->let_pass(member.key, key(name), "unknown key; it is not read")) continue;
    if (is_nvidias && std::ranges::find(ours, name) != ours.end())
      return refuse(member.key, name, "NVIDIA's file has no such key", "begin the file with 'version: v2'");
    if (auto r = reader->check_keys(*map, path, known); !r) blame(std::move(r).error());
    return;
  }
}

ClassPart ClassPart::at(std::string_view name) const {
  const ConfigNode* node = find(name);
  const bool is_map = node != nullptr && node->kind == Kind::map;
  if (node != nullptr && node->kind != Kind::null && !is_map)
    refuse(*node, name, fmt::format("expected a map, found {}", node->described()));
  return {.reader = reader,
          .fault = fault,
          .map = is_map ? node : nullptr,
          .path = key(name),
          .is_nvidias = is_nvidias};
}

void ClassPart::text_at(std::string_view name, const std::string& what, bool (*fits)(std::string_view),
                        std::string& into) const {
  const ConfigNode* node = find(name);
  if (node == nullptr) return;
  if (node->is_string() && fits(node->text)) {
    into = node->text;
    return;
  }
  const bool needs_quotes = node->kind == Kind::scalar && !node->is_string();
  refuse(*node, name, fmt::format("expected {}, found {}", what, node->described()),
         needs_quotes ? fmt::format("put it in quotes: \"{}\"", node->text) : "");
}

void ClassPart::texts_at(std::string_view name, const std::string& what, bool (*fits)(std::string_view),
                         std::vector<std::string>& into) const {
  const ConfigNode* node = find(name);
  if (node == nullptr) return;
  if (node->kind != Kind::list)
    return refuse(*node, name, fmt::format("expected a list, of {} each, found {}", what, node->described()));
  for (const ConfigNode& item : node->items) {
    if (!item.is_string() || !fits(item.text))
      return refuse(item, fmt::format("{}[{}]", name, &item - node->items.data()),
                    fmt::format("expected {}, found {}", what, item.described()));
    into.push_back(item.text);
  }
}

void ClassPart::path_at(std::string_view name, std::optional<std::filesystem::path>& into) const {
  std::string text;
  text_at(name, "an absolute path without '..'", is_host_path, text);
  if (!text.empty()) into = std::filesystem::path(text).lexically_normal();
}

void ClassPart::flag_at(std::string_view name, bool& into) const {
  const ConfigNode* node = find(name);
  if (node == nullptr) return;
  const auto flag = reader->read_flag(*node, key(name));
  if (!flag) return blame(flag.error());
  into = *flag;
}

}  // namespace ferry::kata
