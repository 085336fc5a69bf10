// SPDX-License-Identifier: Apache-2.0
#include "agent/seen_offer.h"

#include <limits>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace ferry::agent {
namespace {

using nlohmann::json;

constexpr int kVersionOfFormat = 1;

// The readers below throw this for a value of another form; read_seen_offer() catches it, and the library's
// own.
struct Unreadable {
  std::string why;
};

// An object where something is a list would be walked by its values.
const json& list_at(const json& object, const char* key) {
  const json& value = object.at(key);
  if (!value.is_array()) throw Unreadable{fmt::format("{} is no list", key)};
  return value;
}

std::uint32_t group_of(const json& value) {
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() > std::numeric_limits<std::uint32_t>::max())
    throw Unreadable{"iommu_group is no number"};
  return value.get<std::uint32_t>();
}

SeenDevice device_of(const json& value) {
  SeenDevice out{.id = value.at("id").get<std::string>(),
                 .iommu_group = group_of(value.at("iommu_group")),
                 .healthy = value.at("healthy").get<bool>(),
                 .allocated = value.at("allocated").get<bool>()};
  // Plugins before these were said have neither.
  if (const auto held = value.find("held_with_group"); held != value.end())
    out.held_with_group = held->get<bool>();
  if (const auto pod = value.find("pod"); pod != value.end() && !pod->is_null())
    out.pod = pod->get<std::string>();
  return out;
}

SeenResource resource_of(const json& value) {
  SeenResource out{.name = value.at("name").get<std::string>(),
                   .registered = value.at("registered").get<bool>(),
                   .devices = {}};
  for (const json& device : list_at(value, "devices")) out.devices.push_back(device_of(device));
  return out;
}

SeenOffer offer_of(const json& file) {
  if (file.at("version") != kVersionOfFormat) throw Unreadable{"written by another version of ferry"};
  SeenOffer out;
  for (const json& resource : list_at(file, "resources")) out.resources.push_back(resource_of(resource));
  for (const json& device : list_at(file, "not_offered"))
    out.not_offered.push_back(device.at("id").get<std::string>());
  // Plugins before it was said have none.
  if (const auto why = file.find("stands_back"); why != file.end()) out.stands_back = why->is_string();
  return out;
}

}  // namespace

Result<SeenOffer> read_seen_offer(std::string_view text) {
  const auto broken = [](const std::string& why) {
    return fail(Errc::malformed_host, fmt::format("/{}: {}", kOfferedFile, why),
                "ferry plugin writes it: is it of the same version as the agent?");
  };
  try {
    const json file = json::parse(text);
    if (!file.is_object()) return broken("no JSON object");
    return offer_of(file);
  } catch (const json::exception& error) {
    return broken(error.what());
  } catch (const Unreadable& error) {
    return broken(error.why);
  }
}

}  // namespace ferry::agent
