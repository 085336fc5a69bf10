// SPDX-License-Identifier: Apache-2.0
#include "kubectl/object_fields.h"

#include "common/text/visible_text.h"

namespace ferry::kubectl {

using nlohmann::json;

const json& field(const json& object, std::string_view key) {
  static const json kNothing;
  const auto found = object.is_object() ? object.find(key) : object.end();
  return found == object.end() ? kNothing : *found;
}

const json& field_at(const json& object, std::initializer_list<std::string_view> keys) {
  const json* at = &object;
  for (const std::string_view key : keys) at = &field(*at, key);
  return *at;
}

std::string text_field(const json& object, std::string_view key) {
  const json& value = field(object, key);
  return value.is_string() ? visible_line(value.get<std::string>()) : std::string();
}

bool flag_field(const json& object, std::string_view key) {
  const json& value = field(object, key);
  return value.is_boolean() && value.get<bool>();
}

std::map<std::string, std::string> texts_field(const json& object, std::string_view key) {
  std::map<std::string, std::string> out;
  const json& values = field(object, key);
  if (!values.is_object()) return out;
  for (const auto& [name, value] : values.items())
    if (value.is_string()) out.emplace(visible_line(name), visible_line(value.get<std::string>()));
  return out;
}

json only_keys(const json& object, std::initializer_list<std::string_view> keys) {
  json out = json::object();
  for (const std::string_view key : keys)
    if (const json& value = field(object, key); !value.is_null()) out[std::string(key)] = value;
  return out;
}

json each_item(const json& object, std::string_view key, const std::function<json(const json&)>& taken) {
  auto out = json::array();
  for (const json& item : items_field(object, key)) out.push_back(taken(item));
  return out;
}

const std::vector<json>& items_field(const json& object, std::string_view key) {
  static const std::vector<json> kNone;
  const json& value = field(object, key);
  return value.is_array() ? value.get_ref<const json::array_t&>() : kNone;
}

}  // namespace ferry::kubectl
