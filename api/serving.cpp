// SPDX-License-Identifier: Apache-2.0
#include "api/serving.h"

#include "common/text/json.h"

namespace ferry::api {
namespace {

constexpr const char* kAgent = "agent";
constexpr JsonBounds kBounds{.bytes = std::size_t{64} * 1024};

std::string read_standby(const JsonObject& file) {
  file.expect_version(kServingVersion);
  const bool serve = file.flag("serve");
  const std::string reason = file.text_or_none("reason");
  if (serve) return {};
  return reason.empty() ? "serving.json says so" : reason;
}

}  // namespace

std::string serving_file_text(std::string_view standby) {
  return json_text({{"version", kServingVersion}, {"serve", false}, {"reason", standby}, {"by", kAgent}});
}

Result<std::string> read_serving_file(std::string_view text, std::string_view file) {
  const std::string hint = "remove /" + std::string(file) +
                           " to have the device plugin serve; the agent writes it anew where it is needed";
  return read_json(text, file, hint, read_standby, kBounds);
}

bool is_of_the_agent(std::string_view serving_file) {
  const auto file = parse_document(serving_file, kServingFile, {}, kBounds);
  return file && json_at(*file, "by") == kAgent;
}

}  // namespace ferry::api
