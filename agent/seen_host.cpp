// SPDX-License-Identifier: Apache-2.0
#include "agent/seen_host.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace ferry {
namespace {

using nlohmann::json;

constexpr int kVersionOfFormat = 1;

constexpr std::array<std::pair<std::string_view, SeenPhase>, 6> kPhases = {
    {{"as_wanted", SeenPhase::as_wanted},
     {"withdrawing", SeenPhase::withdrawing},
     {"changing", SeenPhase::changing},
     {"refused", SeenPhase::refused},
     {"failed", SeenPhase::failed},
     {"nothing_wanted", SeenPhase::nothing_wanted}}};

// What the readers below throw for a value of another form; caught, with the library's own, at the end.
struct Unreadable {
  std::string why;
};

std::string text_at(const json& object, const char* key) {
  const auto value = object.find(key);
  return value == object.end() || value->is_null() ? std::string() : value->get<std::string>();
}

Mode mode_of(const json& value) {
  const auto mode = parse_mode(value.get_ref<const std::string&>());
  if (!mode) throw Unreadable{fmt::format("'{}' is no mode", value.get_ref<const std::string&>())};
  return *mode;
}

SeenPhase phase_of(const json& value) {
  const auto& word = value.get_ref<const std::string&>();
  const auto* const found = std::ranges::find(kPhases, word, &std::pair<std::string_view, SeenPhase>::first);
  if (found == kPhases.end()) throw Unreadable{fmt::format("'{}' is no phase", word)};
  return found->second;
}

std::string holder_of(const json& value) {
  std::string out = value.at("name").get<std::string>();
  std::string kind = text_at(value, "kind");
  std::ranges::replace(kind, '_', ' ');
  if (!kind.empty()) out = kind + " " + out;
  if (const auto pid = value.find("pid"); pid != value.end() && !pid->is_null())
    out += fmt::format(" (pid {})", pid->get<std::int64_t>());
  return out;
}

// An object where something is a list would be walked by its values.
const json& list_at(const json& object, const char* key) {
  const json& value = object.at(key);
  if (!value.is_array()) throw Unreadable{fmt::format("{} is no list", key)};
  return value;
}

SeenAccelerator accelerator_of(const json& value) {
  SeenAccelerator out;
  out.address = value.at("address").get<std::string>();
  out.model = text_at(value, "model");
  out.mode = mode_of(value.at("mode"));
  if (const json& wanted = value.at("wanted"); !wanted.is_null()) out.wanted = mode_of(wanted);
  out.state = value.at("state").get<std::string>();
  out.reason = text_at(value, "reason");
  out.hint = text_at(value, "hint");
  for (const json& holder : list_at(value, "holders")) out.holders.push_back(holder_of(holder));
  out.vgpus = list_at(value, "vgpus").size();
  return out;
}

SeenHost host_of(const json& file) {
  if (file.at("version") != kVersionOfFormat) throw Unreadable{"written by another version of ferry"};
  SeenHost out;
  out.phase = phase_of(file.at("phase"));
  // A person's wanted.json may have no generation.
  if (const json& wanted = file.at("wanted"); !wanted.is_null()) {
    if (const auto generation = wanted.find("generation");
        generation != wanted.end() && !generation->is_null()) {
      if (!generation->is_number_unsigned()) throw Unreadable{"wanted.generation is no number"};
      out.wanted = generation->get<std::uint64_t>();
    }
  }
  for (const json& accelerator : list_at(file, "accelerators"))
    out.accelerators.push_back(accelerator_of(accelerator));
  for (const json& device : list_at(file, "withdraw"))
    out.withdraw.push_back(device.at("id").get<std::string>());
  if (const auto error = file.find("error"); error != file.end() && !error->is_null()) {
    out.error = error->at("message").get<std::string>();
    out.hint = text_at(*error, "hint");
  }
  return out;
}

}  // namespace

Result<SeenHost> read_seen_host(std::string_view text) {
  const auto broken = [](const std::string& why) {
    return fail(Errc::malformed_host, fmt::format("/{}: {}", kStateFile, why),
                "ferry hostd writes it: is it of the same version as the agent?");
  };
  try {
    const json file = json::parse(text);
    if (!file.is_object()) return broken("no JSON object");
    return host_of(file);
  } catch (const json::exception& error) {
    return broken(error.what());
  } catch (const Unreadable& error) {
    return broken(error.why);
  }
}

}  // namespace ferry
