// SPDX-License-Identifier: Apache-2.0
#include "common/serving_file.h"

#include <nlohmann/json.hpp>

namespace ferry {
namespace {

constexpr int kVersionOfFormat = 1;
constexpr const char* kAgent = "agent";

tl::unexpected<Error> malformed(const std::string& what) {
  return fail(Errc::malformed_host, std::string(kServingFileName) + ": " + what,
              "remove /var/lib/ferry/serving.json to have the device plugin serve; the agent writes it anew "
              "where it is needed");
}

}  // namespace

std::string serving_file_text(std::string_view stand_back) {
  using Json = nlohmann::ordered_json;
  const Json file = {{"version", kVersionOfFormat}, {"serve", false}, {"reason", stand_back}, {"by", kAgent}};
  return file.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<std::string> read_serving_file(std::string_view text) {
  const auto file = nlohmann::json::parse(text, nullptr, false);
  if (!file.is_object()) return malformed("not a JSON object");
  const auto version = file.find("version");
  if (version == file.end() || *version != kVersionOfFormat) return malformed("version: expected 1");
  const auto serve = file.find("serve");
  if (serve == file.end() || !serve->is_boolean()) return malformed("serve: expected true or false");
  if (serve->get<bool>()) return std::string();
  const auto reason = file.find("reason");
  if (reason != file.end() && !reason->is_string()) return malformed("reason: expected a text");
  const std::string why = reason == file.end() ? std::string() : reason->get<std::string>();
  return why.empty() ? std::string(kServingFileName) + " says so" : why;
}

bool is_of_the_agent(std::string_view serving_file) {
  const auto file = nlohmann::json::parse(serving_file, nullptr, false);
  if (!file.is_object()) return false;
  const auto by = file.find("by");
  return by != file.end() && *by == kAgent;
}

}  // namespace ferry
