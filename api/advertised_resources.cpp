// SPDX-License-Identifier: Apache-2.0
#include "api/advertised_resources.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <nlohmann/json.hpp>

#include "api/files.h"
#include "common/text/json.h"

namespace ferry::api {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kHint = "ferry plugin writes it: is it of the same version? A restart writes it anew";

Json json_of(const AdvertisedDevice& device) {
  return {{"id", device.id},
          {"healthy", device.healthy},
          {"reason", device.reason},
          {"numa_node", or_null(device.numa_node)},
          {"iommu_group", device.iommu_group},
          {"allocated", device.allocated},
          {"awaits_release", device.awaits_release},
          {"held_with_group", device.held_with_group},
          {"pod", or_null(device.pod)}};
}

Json json_of(const AdvertisedResource& resource, const std::vector<AdvertisedDevice>& all) {
  auto devices = Json::array();
  for (const AdvertisedDevice& device : all)
    if (device.resource == resource.name) devices.push_back(json_of(device));
  Json out = {{"name", resource.name},
              {"env", resource.env},
              {"registered", resource.registered},
              {"devices", std::move(devices)}};
  if (!resource.places) return out;
  auto& places = out["places"] = Json::array();
  for (const AdvertisedPlace& place : *resource.places)
    places.push_back({{"id", place.id}, {"healthy", place.healthy}, {"reason", place.reason}});
  return out;
}

AdvertisedDevice read_device(const JsonObject& device) {
  return {.resource = {},
          .id = device.text("id"),
          .iommu_group = device.number<std::uint32_t>("iommu_group"),
          .numa_node = device.number_or_none<int>("numa_node"),
          .allocated = device.flag("allocated"),
          .healthy = device.flag_or("healthy", true),
          .reason = device.text_or_none("reason"),
          .awaits_release = device.flag_or("awaits_release", false),
          .held_with_group = device.flag_or("held_with_group", false),
          .pod = device.text_or_none("pod")};
}

AdvertisedPlace read_place(const JsonObject& place) {
  return {.id = place.text("id"),
          .healthy = place.flag_or("healthy", true),
          .reason = place.text_or_none("reason")};
}

NotAdvertised read_not_advertised(const JsonObject& device) {
  return {.id = device.text("id"), .reason = device.text_or_none("reason")};
}

FatalErrorsOf read_fatal_errors(const JsonObject& errors) {
  return {.function = errors.text("function"),
          .since = errors.number<std::uint64_t>("since"),
          .binding = errors.number_or_none<std::uint64_t>("binding").value_or(0)};
}

AdvertisedResources read_whole(const JsonObject& file) {
  file.expect_version(kAdvertisedVersion);
  AdvertisedResources out{.generation = file.generation_or_none("generation").value_or(0),
                          .pid = file.number_or_none<int>("pid").value_or(0),
                          .state_generation = file.generation_or_none("state_generation").value_or(0)};
  out.resources = file.list("resources", [&out](const JsonObject& resource) {
    AdvertisedResource read{.name = resource.text("name"),
                            .env = resource.text_or_none("env"),
                            .registered = resource.flag_or("registered", true),
                            .places = resource.list_or_none("places", read_place)};
    for (AdvertisedDevice& device : resource.list("devices", read_device)) {
      device.resource = read.name;
      out.devices.push_back(std::move(device));
    }
    return read;
  });
  out.not_advertised =
      file.list_or_none("not_advertised", read_not_advertised).value_or(std::vector<NotAdvertised>());
  out.fatal_errors =
      file.list_or_none("fatal_errors", read_fatal_errors).value_or(std::vector<FatalErrorsOf>());
  out.standby = file.text_or_none("standby");
  return out;
}

/// The entries of a list. Empty: it is no list.
const std::vector<nlohmann::json>& entries(const nlohmann::json& object, std::string_view key) {
  static const std::vector<nlohmann::json> kNone;
  const auto* const list = json_at(object, key).get_ptr<const nlohmann::json::array_t*>();
  return list == nullptr ? kNone : *list;
}

std::uint32_t group_of(const nlohmann::json& device) {
  const nlohmann::json& group = json_at(device, "iommu_group");
  const bool fits =
      group.is_number_unsigned() && group.get<std::uint64_t>() <= std::numeric_limits<std::uint32_t>::max();
  return fits ? group.get<std::uint32_t>() : 0;
}

}  // namespace

const AdvertisedDevice* AdvertisedResources::find(const std::set<std::string>& ids,
                                                  const std::set<std::uint32_t>& groups) const {
  const auto found = std::ranges::find_if(devices, [&](const AdvertisedDevice& device) {
    return ids.contains(device.id) || groups.contains(device.iommu_group);
  });
  return found == devices.end() ? nullptr : &*found;
}

const AdvertisedResource* AdvertisedResources::resource(std::string_view name) const {
  const auto found = std::ranges::find(resources, name, &AdvertisedResource::name);
  return found == resources.end() ? nullptr : &*found;
}

std::string advertised_resources_text(const AdvertisedResources& advertised) {
  auto resources = Json::array();
  for (const AdvertisedResource& resource : advertised.resources)
    resources.push_back(json_of(resource, advertised.devices));
  auto left_out = Json::array();
  for (const NotAdvertised& device : advertised.not_advertised)
    left_out.push_back({{"id", device.id}, {"reason", device.reason}});
  Json file = {{"version", kAdvertisedVersion},
               {"generation", advertised.generation},
               {"pid", advertised.pid},
               {"state_generation", advertised.state_generation},
               {"resources", std::move(resources)},
               {"not_advertised", std::move(left_out)},
               {"standby", or_null(advertised.standby)}};
  for (const auto& [function, since, binding] : advertised.fatal_errors)
    file["fatal_errors"].push_back({{"function", function}, {"since", since}, {"binding", binding}});
  return json_text(file);
}

Result<AdvertisedResources> read_advertised_resources(std::string_view text) {
  return read_json(text, kAdvertisedFile, kHint, read_whole);
}

Result<AdvertisedResources> read_allocations(std::string_view text) {
  const auto file = parse_document(text, "/" + std::string(kAdvertisedFile), kHint);
  if (!file) return fail(file.error());
  AdvertisedResources out;
  for (const nlohmann::json& resource : entries(*file, "resources")) {
    const std::string name = text_at(resource, "name");
    if (json_at(resource, "env").is_string())
      out.resources.push_back({.name = name, .env = text_at(resource, "env")});
    for (const nlohmann::json& device : entries(resource, "devices")) {
      if (json_at(device, "allocated") != true) continue;
      out.devices.push_back({.resource = name,
                             .id = text_at(device, "id"),
                             .iommu_group = group_of(device),
                             .allocated = true,
                             .pod = text_at(device, "pod")});
    }
  }
  for (const nlohmann::json& errors : entries(*file, "fatal_errors")) {
    std::string fault;
    auto read = read_fatal_errors(JsonObject(errors, fault));
    if (fault.empty()) out.fatal_errors.push_back(std::move(read));
  }
  return out;
}

}  // namespace ferry::api
