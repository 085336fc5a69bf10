// SPDX-License-Identifier: Apache-2.0
#include "common/text/json.h"

#include <algorithm>

#include "common/generation.h"

namespace ferry {
namespace {

const nlohmann::json kNothing;

}  // namespace

JsonObject::JsonObject(const nlohmann::json& object, std::string place, std::string& fault)
    : object_(object), place_(std::move(place)), fault_(fault) {
  if (!object.is_object()) blame("", "expected an object");
}

std::string JsonObject::text(const char* key) const {
  const nlohmann::json& value = needed(key);
  if (!value.is_string()) return blame(key, "expected a text"), std::string();
  return value.get<std::string>();
}

std::string JsonObject::text_or_none(const char* key) const {
  return find(key) == nullptr ? std::string() : text(key);
}

bool JsonObject::flag(const char* key) const {
  const nlohmann::json& value = needed(key);
  if (!value.is_boolean()) return blame(key, "expected true or false"), false;
  return value.get<bool>();
}

bool JsonObject::flag_or(const char* key, bool otherwise) const {
  return object_.is_object() && object_.contains(key) ? flag(key) : otherwise;
}

std::optional<std::uint64_t> JsonObject::generation_or_none(const char* key) const {
  const auto generation = number_or_none<std::uint64_t>(key);
  if (generation <= kLastGeneration) return generation;
  blame(key, "expected a number from 0 to 2^53 - 1");
  return std::nullopt;
}

std::vector<std::uint32_t> JsonObject::numbers(const char* key) const {
  const nlohmann::json& values = needed(key);
  std::vector<std::uint32_t> out;
  if (!values.is_array()) return blame(key, "expected a list"), out;
  for (const nlohmann::json& value : values) {
    if (!value.is_number_unsigned() ||
        value.get<std::uint64_t>() > std::numeric_limits<std::uint32_t>::max()) {
      blame(std::string(key) + "[" + std::to_string(out.size()) + "]", "expected a number from 0 on");
      return {};
    }
    out.push_back(value.get<std::uint32_t>());
  }
  return out;
}

std::vector<std::string> JsonObject::texts_or_none(const char* key) const {
  std::vector<std::string> out;
  const nlohmann::json* const list = find(key);
  if (list == nullptr) return out;
  if (!list->is_array() || !std::ranges::all_of(*list, [](const auto& one) { return one.is_string(); })) {
    blame(key, "expected a list of texts");
    return out;
  }
  for (const auto& one : *list) out.push_back(one.get<std::string>());
  return out;
}

std::map<std::string, std::uint32_t> JsonObject::numbers_or_none(const char* key) const {
  const auto read = [](const JsonObject& numbers) {
    std::map<std::string, std::uint32_t> out;
    if (numbers.object_.is_object())
      for (const auto& entry : numbers.object_.items())
        out[entry.key()] = numbers.number<std::uint32_t>(entry.key().c_str());
    return out;
  };
  return object_or_none(key, read).value_or(std::map<std::string, std::uint32_t>());
}

void JsonObject::expect_key(const char* key) const {
  if (!object_.is_object() || !object_.contains(key)) blame(key, "the key is missing");
}

void JsonObject::expect_version(int version) const {
  expect_key("version");
  const nlohmann::json& value = json_at(object_, "version");
  if (value == version) return;
  blame("version", "expected " + std::to_string(version) + ", found " +
                       (value.is_number() ? value.dump() : std::string("no number")));
}

void JsonObject::blame(const std::string& key, const std::string& what) const {
  if (!fault_.empty()) return;
  const std::string place = key.empty() ? place_ : place_of(key);
  fault_ = place.empty() ? what : place + ": " + what;
}

const nlohmann::json* JsonObject::find(const char* key) const {
  if (!object_.is_object()) return nullptr;
  const auto found = object_.find(key);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

const nlohmann::json& JsonObject::needed(const char* key) const {
  expect_key(key);
  const nlohmann::json* const value = find(key);
  return value == nullptr ? kNothing : *value;
}

std::string JsonObject::place_of(const std::string& key) const {
  return place_.empty() ? key : place_ + "." + key;
}

Result<nlohmann::json> parse_document(std::string_view text, const std::string& what, const std::string& hint,
                                      const JsonBounds& bounds) {
  std::string fault = beyond(text, bounds);
  auto document = fault.empty() ? nlohmann::json::parse(text, nullptr, false) : nlohmann::json();
  if (document.is_discarded()) fault = "not JSON";
  if (!fault.empty()) return fail(Errc::malformed_host, what + ": " + fault, hint);
  return document;
}

const nlohmann::json& json_at(const nlohmann::json& object, std::string_view key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  return found == object.end() ? kNothing : *found;
}

std::string text_at(const nlohmann::json& object, std::string_view key) {
  const nlohmann::json& value = json_at(object, key);
  return value.is_string() ? value.get<std::string>() : std::string();
}

std::string json_text(const nlohmann::ordered_json& document) {
  return document.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

nlohmann::ordered_json or_null(const std::string& text) {
  return text.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(text);
}

}  // namespace ferry
