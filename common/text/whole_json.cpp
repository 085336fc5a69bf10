// SPDX-License-Identifier: Apache-2.0
#include "common/text/whole_json.h"

namespace ferry {
namespace {

constexpr std::size_t kDeepest = 100;  // objects of Kubernetes have about 15

bool is_too_deep(std::string_view text) {
  std::size_t depth = 0;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted && c == '\\') {
      ++i;
    } else if (c == '"') {
      quoted = !quoted;
    } else if (!quoted && (c == '[' || c == '{')) {
      if (++depth > kDeepest) return true;
    } else if (!quoted && (c == ']' || c == '}') && depth > 0) {
      --depth;
    }
  }
  return false;
}

}  // namespace

nlohmann::json parse_whole_json(std::string_view text) {
  using nlohmann::json;
  constexpr int kNoWholeNumber = 302;  // the library's own number for a value of the wrong type
  return json::parse(text, [](int /*depth*/, json::parse_event_t event, const json& value) {
    if (event == json::parse_event_t::value && value.is_number_float())
      throw json::type_error::create(kNoWholeNumber, value.dump() + " is no whole number of 64 bits", &value);
    return true;
  });
}

nlohmann::json parse_answer_json(std::string_view text) {
  using nlohmann::json;
  return is_too_deep(text) ? json(json::value_t::discarded) : json::parse(text, nullptr, false);
}

const nlohmann::json& field(const nlohmann::json& object, std::string_view key) {
  static const nlohmann::json kNothing;
  const auto found = object.is_object() ? object.find(key) : object.end();
  return found == object.end() ? kNothing : *found;
}

std::string text_field(const nlohmann::json& object, std::string_view key) {
  const auto& value = field(object, key);
  return value.is_string() ? value.get<std::string>() : std::string();
}

}  // namespace ferry
