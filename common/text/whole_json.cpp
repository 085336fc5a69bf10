// SPDX-License-Identifier: Apache-2.0
#include "common/text/whole_json.h"

#include <limits>

#include <fmt/format.h>

namespace ferry {

std::string beyond(std::string_view json, const JsonBounds& bounds) {
  constexpr std::size_t kMiB = std::size_t{1} << 20U;
  if (json.size() > bounds.bytes)
    return bounds.bytes < kMiB ? fmt::format("larger than {} KiB", bounds.bytes >> 10U)
                               : fmt::format("larger than {} MiB", bounds.bytes >> 20U);
  std::size_t depth = 0;
  std::size_t values = 1;
  bool quoted = false;
  for (std::size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (quoted && c == '\\') {
      ++i;
    } else if (c == '"') {
      quoted = !quoted;
    } else if (!quoted && (c == '[' || c == '{')) {
      if (++depth > bounds.levels) return fmt::format("nested deeper than {} levels", bounds.levels);
      ++values;
    } else if (!quoted && (c == ']' || c == '}') && depth > 0) {
      --depth;
    } else if (!quoted && c == ',') {
      ++values;
    }
  }
  return values > bounds.values ? fmt::format("more than {} values", bounds.values) : "";
}

nlohmann::json parse_whole_json(std::string_view text) {
  using nlohmann::json;
  constexpr int kBeyond = 501;  // the library's own number for another error than those of its kinds
  if (const std::string fault = beyond(text); !fault.empty())
    throw json::other_error::create(kBeyond, fault, nullptr);
  constexpr int kNoWholeNumber = 302;  // the library's own number for a value of the wrong type
  return json::parse(text, [](int /*depth*/, json::parse_event_t event, const json& value) {
    if (event == json::parse_event_t::value && value.is_number_float())
      throw json::type_error::create(kNoWholeNumber, value.dump() + " is no whole number of 64 bits", &value);
    return true;
  });
}

nlohmann::json parse_answer_json(std::string_view text) {
  using nlohmann::json;
  // Objects of Kubernetes have about 15 levels. The transport bounds their size.
  constexpr auto kAny = std::numeric_limits<std::size_t>::max();
  constexpr JsonBounds kAnswer{.bytes = kAny, .levels = 100, .values = kAny};
  return beyond(text, kAnswer).empty() ? json::parse(text, nullptr, false) : json(json::value_t::discarded);
}

}  // namespace ferry
