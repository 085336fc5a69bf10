// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/controller/ready_handlers.h"

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

#include "api/files.h"
#include "common/text/json.h"
#include "common/text/words.h"
#include "kata-manager/configuration/kata_configuration.h"

namespace ferry::kata {
namespace {

using Json = nlohmann::ordered_json;

bool is_ours(const KnownRuntime& runtime) {
  return runtime.configuration.starts_with(kata_configuration_folder("").string());
}

constexpr Words<HandlerState, 6> kStates = {{{"installing", HandlerState::installing},
                                             {"missing_artifact", HandlerState::missing_artifact},
                                             {"pending", HandlerState::pending},
                                             {"leaving", HandlerState::leaving},
                                             {"blocked", HandlerState::blocked},
                                             {"failed", HandlerState::failed}}};

constexpr const char* kHint = "ferry hostd writes it: is it of the same version? A restart writes it anew";

std::set<std::string> read_ready(const JsonObject& file) {
  // Version 1 has the same list of handlers; only the words of its other states differ.
  if (file.number<int>("version") != 1) file.expect_version(api::kReadyHandlersVersion);
  const auto names = file.list("handlers", [](const JsonObject& handler) { return handler.text("name"); });
  return {names.begin(), names.end()};
}

// Absent: a state of a later version.
std::optional<OtherHandler> read_other(const JsonObject& other) {
  OtherHandler out{.name = other.text("name"), .why = other.text_or_none("why")};
  const auto state = value_for(kStates, other.text("state"));
  if (!state) return std::nullopt;
  out.state = *state;
  return out;
}

HandlersFile read_whole(const JsonObject& file) {
  HandlersFile out{.ready = read_ready(file),
                   .generation = file.generation_or_none("generation"),
                   .applying = file.flag_or("applying", false),
                   .error = file.text_or_none("error")};
  for (auto& other :
       file.list_or_none("others", read_other).value_or(std::vector<std::optional<OtherHandler>>())) {
    if (!other) continue;
    if (std::ranges::find(out.others, other->name, &OtherHandler::name) != out.others.end())
      file.blame("others", "'" + other->name + "' stands twice");
    out.others.push_back(std::move(*other));
  }
  return out;
}

}  // namespace

std::optional<std::set<std::string>> ready_handlers(const RuntimeState& state) {
  if (!state.runtimes) return std::nullopt;
  std::set<std::string> out;
  for (const KnownRuntime& runtime : *state.runtimes)
    if (is_ours(runtime) && state.has(runtime.name) && state.starts_shim_of(runtime))
      out.insert(runtime.name);
  return out;
}

std::vector<std::string> unstartable_handlers(const RuntimeState& state) {
  std::vector<std::string> out;
  for (const KnownRuntime& runtime : state.runtimes.value_or(std::vector<KnownRuntime>()))
    if (is_ours(runtime) && !state.starts_shim_of(runtime)) out.push_back(runtime.name);
  std::ranges::sort(out);
  return out;
}

std::string_view text(HandlerState state) {
  return word_for(kStates, state);
}

std::string handlers_file_text(const HandlersFile& file) {
  auto ready = Json::array();
  for (const std::string& name : file.ready) ready.push_back({{"name", name}});
  Json out = {{"version", api::kReadyHandlersVersion}, {"handlers", std::move(ready)}};
  if (file.generation) out["generation"] = *file.generation;
  if (file.generation || file.applying) out["applying"] = file.applying;
  auto others = Json::array();
  for (const OtherHandler& other : file.others) {
    Json entry = {{"name", other.name}, {"state", text(other.state)}};
    if (!other.why.empty()) entry["why"] = other.why;
    others.push_back(std::move(entry));
  }
  if (!others.empty()) out["others"] = std::move(others);
  if (!file.error.empty()) out["error"] = file.error;
  return json_text(out);
}

Result<HandlersFile> read_handlers_file(std::string_view text) {
  return read_json(text, api::kReadyHandlersFile, kHint, read_whole);
}

Result<std::set<std::string>> read_ready_handlers(std::string_view text) {
  return read_json(text, api::kReadyHandlersFile, kHint, read_ready);
}

}  // namespace ferry::kata
