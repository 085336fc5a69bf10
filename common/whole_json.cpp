// SPDX-License-Identifier: Apache-2.0
#include "common/whole_json.h"

namespace ferry {

nlohmann::json parse_whole_json(std::string_view text) {
  using nlohmann::json;
  constexpr int kNoWholeNumber = 302;  // the library's own number for a value of the wrong type
  return json::parse(text, [](int /*depth*/, json::parse_event_t event, const json& value) {
    if (event == json::parse_event_t::value && value.is_number_float())
      throw json::type_error::create(kNoWholeNumber, value.dump() + " is no whole number of 64 bits", &value);
    return true;
  });
}

}  // namespace ferry
