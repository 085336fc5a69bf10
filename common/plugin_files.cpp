// SPDX-License-Identifier: Apache-2.0
#include "common/plugin_files.h"

#include <nlohmann/json.hpp>

namespace ferry {
namespace {

constexpr int kServingVersion = 1;
constexpr const char* kAgent = "agent";

tl::unexpected<Error> malformed_serving_file(const std::string& what) {
  return fail(Errc::malformed_host, std::string(kServingFileName) + ": " + what,
              "remove /var/lib/ferry/serving.json to have the device plugin serve; the agent writes it anew "
              "where it is needed");
}

}  // namespace

std::string serving_file_text(std::string_view standby) {
  using Json = nlohmann::ordered_json;
  const Json file = {{"version", kServingVersion}, {"serve", false}, {"reason", standby}, {"by", kAgent}};
  return file.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<std::string> read_serving_file(std::string_view text) {
  const auto file = nlohmann::json::parse(text, nullptr, false);
  if (!file.is_object()) return malformed_serving_file("not a JSON object");
  const auto version = file.find("version");
  if (version == file.end() || *version != kServingVersion)
    return malformed_serving_file("version: expected 1");
  const auto serve = file.find("serve");
  if (serve == file.end() || !serve->is_boolean())
    return malformed_serving_file("serve: expected true or false");
  if (serve->get<bool>()) return std::string();
  const auto reason = file.find("reason");
  if (reason != file.end() && !reason->is_string()) return malformed_serving_file("reason: expected a text");
  const std::string why = reason == file.end() ? std::string() : reason->get<std::string>();
  return why.empty() ? std::string(kServingFileName) + " says so" : why;
}

bool is_of_the_agent(std::string_view serving_file) {
  const auto file = nlohmann::json::parse(serving_file, nullptr, false);
  if (!file.is_object()) return false;
  const auto by = file.find("by");
  return by != file.end() && *by == kAgent;
}

namespace {

tl::unexpected<Error> malformed_status_file(const std::string& what) {
  return fail(Errc::malformed_host, "status.json: " + what);
}

}  // namespace

Result<Withdrawals> read_withdrawals(std::string_view status_file) {
  const auto file = nlohmann::json::parse(status_file, nullptr, false);
  if (!file.is_object()) return malformed_status_file("not a JSON object");
  const auto version = file.find("version");
  if (version == file.end() || *version != 2) return malformed_status_file("version: expected 2");
  const auto generation = file.find("generation");
  if (generation == file.end() || !generation->is_number_unsigned())
    return malformed_status_file("generation: expected a number");
  const auto list = file.find("unavailable");
  if (list == file.end() || !list->is_array()) return malformed_status_file("unavailable: expected a list");
  Withdrawals out{.generation = generation->get<std::uint64_t>(), .devices = {}};
  for (const auto& device : *list) {
    const auto text_of = [&](const char* key) {
      const auto value = device.is_object() ? device.find(key) : device.end();
      return device.is_object() && value != device.end() && value->is_string() ? value->get<std::string>()
                                                                               : std::string();
    };
    if (text_of("id").empty()) return malformed_status_file("unavailable: expected the id of each device");
    out.devices.push_back({.id = text_of("id"), .reason = text_of("reason")});
  }
  // Earlier versions of hostd do not write this key.
  if (const auto why = file.find("standby"); why != file.end() && !why->is_null()) {
    if (!why->is_string()) return malformed_status_file("standby: expected a text or null");
    out.standby = why->get<std::string>();
  }
  return out;
}

}  // namespace ferry
