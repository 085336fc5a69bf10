// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/controller/ready_handlers.h"

#include <algorithm>
#include <array>
#include <utility>

#include <nlohmann/json.hpp>

#include "kata-manager/kata/kata_configuration.h"

namespace ferry::kata {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kVersion = 2;

bool is_ours(const KnownRuntime& runtime) {
  return runtime.configuration.starts_with(kata_configuration_folder("").string());
}

constexpr std::array<std::pair<HandlerState, std::string_view>, 6> kStates{
    {{HandlerState::installing, "installing"},
     {HandlerState::missing_artifact, "missing_artifact"},
     {HandlerState::pending, "pending"},
     {HandlerState::leaving, "leaving"},
     {HandlerState::blocked, "blocked"},
     {HandlerState::failed, "failed"}}};

tl::unexpected<Error> broken(const char* why) {
  return fail(Errc::malformed_host, std::string("/") + kReadyHandlersFile + ": " + why,
              "ferry hostd writes it: is it of the same version?");
}

Result<Json> parse(std::string_view text) {
  auto file = Json::parse(text, nullptr, false);
  if (!file.is_object()) return broken("no JSON object");
  const auto version = file.find("version");
  // Version 1 has the same list of handlers; only the words of its other states differ.
  if (version == file.end() || (*version != 1 && *version != kVersion))
    return broken("written by another version of ferry");
  return file;
}

// nullptr: no such text.
const std::string* text_at(const Json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto value = object.find(key);
  return value == object.end() ? nullptr : value->get_ptr<const std::string*>();
}

Result<std::set<std::string>> ready_in(const Json& file) {
  const auto handlers = file.find("handlers");
  if (handlers == file.end() || !handlers->is_array()) return broken("handlers is no list");
  std::set<std::string> out;
  for (const Json& handler : *handlers) {
    const std::string* name = text_at(handler, "name");
    if (name == nullptr) return broken("a handler has no name");
    out.insert(*name);
  }
  return out;
}

Result<> read_others(const Json& list, std::vector<OtherHandler>& into) {
  if (!list.is_array()) return broken("others is no list");
  for (const Json& entry : list) {
    const std::string* name = text_at(entry, "name");
    const std::string* state = text_at(entry, "state");
    if (name == nullptr) return broken("one of the others has no name");
    if (state == nullptr) return broken("one of the others has no state");
    const bool says_why = entry.contains("why");
    const std::string* why = text_at(entry, "why");
    if (says_why && why == nullptr) return broken("why is no text");
    if (std::ranges::find(into, *name, &OtherHandler::name) != into.end())
      return broken("one of the others stands twice");
    const auto* known = std::ranges::find(kStates, *state, &decltype(kStates)::value_type::second);
    if (known != kStates.end()) into.push_back({*name, known->first, says_why ? *why : ""});
  }
  return {};
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
  for (const auto& [known, word] : kStates)
    if (known == state) return word;
  return "";
}

std::string handlers_file_text(const HandlersFile& file) {
  auto ready = Json::array();
  for (const std::string& name : file.ready) ready.push_back({{"name", name}});
  Json out = {{"version", kVersion}, {"handlers", std::move(ready)}};
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
  return out.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<HandlersFile> read_handlers_file(std::string_view text) {
  const auto file = parse(text);
  if (!file) return fail(Error(file.error()));
  auto ready = ready_in(*file);
  if (!ready) return fail(std::move(ready).error());
  HandlersFile out{.ready = std::move(*ready)};
  if (const auto generation = file->find("generation"); generation != file->end()) {
    if (!generation->is_number_unsigned()) return broken("generation is no number from 0 on");
    out.generation = generation->get<std::uint64_t>();
  }
  if (const auto applying = file->find("applying"); applying != file->end()) {
    if (!applying->is_boolean()) return broken("applying is neither true nor false");
    out.applying = applying->get<bool>();
  }
  if (const auto others = file->find("others"); others != file->end())
    if (auto r = read_others(*others, out.others); !r) return fail(std::move(r).error());
  if (const auto error = file->find("error"); error != file->end()) {
    if (!error->is_string()) return broken("error is no text");
    out.error = error->get<std::string>();
  }
  return out;
}

Result<std::set<std::string>> read_ready_handlers(std::string_view text) {
  const auto file = parse(text);
  if (!file) return fail(Error(file.error()));
  return ready_in(*file);
}

}  // namespace ferry::kata
