// SPDX-License-Identifier: Apache-2.0
#include "common/withdrawals.h"

#include <nlohmann/json.hpp>

namespace ferry {
namespace {

tl::unexpected<Error> malformed(const std::string& what) {
  return fail(Errc::malformed_host, "state file: " + what);
}

}  // namespace

Result<Withdrawals> read_withdrawals(std::string_view state_file) {
  const auto file = nlohmann::json::parse(state_file, nullptr, false);
  if (!file.is_object()) return malformed("not a JSON object");
  const auto version = file.find("version");
  if (version == file.end() || *version != 1) return malformed("version: expected 1");
  const auto generation = file.find("generation");
  if (generation == file.end() || !generation->is_number_unsigned())
    return malformed("generation: expected a number");
  const auto list = file.find("withdraw");
  if (list == file.end() || !list->is_array()) return malformed("withdraw: expected a list");
  Withdrawals out{.generation = generation->get<std::uint64_t>(), .devices = {}};
  for (const auto& device : *list) {
    const auto text_of = [&](const char* key) {
      const auto value = device.is_object() ? device.find(key) : device.end();
      return device.is_object() && value != device.end() && value->is_string() ? value->get<std::string>()
                                                                               : std::string();
    };
    if (text_of("id").empty()) return malformed("withdraw: expected the id of each device");
    out.devices.push_back({.id = text_of("id"), .reason = text_of("reason")});
  }
  // Earlier versions of hostd do not write this key.
  if (const auto why = file.find("stand_back"); why != file.end() && !why->is_null()) {
    if (!why->is_string()) return malformed("stand_back: expected a text or null");
    out.stand_back = why->get<std::string>();
  }
  return out;
}

}  // namespace ferry
