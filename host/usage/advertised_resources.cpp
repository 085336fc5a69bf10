// SPDX-License-Identifier: Apache-2.0
#include "host/usage/advertised_resources.h"

#include <algorithm>
#include <limits>

#include <nlohmann/json.hpp>

#include "common/text/text.h"

namespace ferry::host {
namespace {

using nlohmann::json;

tl::unexpected<Error> malformed(const std::string& what) {
  return fail(Errc::malformed_host, "advertised.json: " + what);
}

const json* member(const json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() ? nullptr : &*found;
}

// A text for people only, so a malformed one counts as empty.
std::string text_of(const json& object, const char* key) {
  const json* const value = member(object, key);
  return value != nullptr && value->is_string() ? value->get<std::string>() : std::string();
}

Result<AdvertisedDevice> read_device(const std::string& resource, const json& device) {
  const json* const id = member(device, "id");
  if (id == nullptr || !id->is_string()) return malformed("id: expected the text that names a device");
  const json* const group = member(device, "iommu_group");
  if (group == nullptr || !group->is_number_unsigned() ||
      group->get<std::uint64_t>() > std::numeric_limits<std::uint32_t>::max())
    return malformed("iommu_group: expected a number");
  const json* const allocated = member(device, "allocated");
  if (allocated == nullptr || !allocated->is_boolean()) return malformed("allocated: expected true or false");
  const json* const healthy = member(device, "healthy");
  const json* const held = member(device, "held_with_group");
  return AdvertisedDevice{.resource = resource,
                          .id = id->get<std::string>(),
                          .iommu_group = group->get<std::uint32_t>(),
                          .allocated = allocated->get<bool>(),
                          .healthy = healthy == nullptr || !healthy->is_boolean() || healthy->get<bool>(),
                          .reason = text_of(device, "reason"),
                          .held_with_group = held != nullptr && *held == true,
                          .pod = text_of(device, "pod")};
}

// These values are only shown to people, so a value of another form counts as the usual one.
AdvertisedResource read_resource(const std::string& name, const json& resource) {
  AdvertisedResource out{.name = name};
  const json* const registered = member(resource, "registered");
  out.registered = registered == nullptr || *registered != false;
  const json* const places = member(resource, "places");
  if (places != nullptr && places->is_array()) out.places = places->size();
  return out;
}

// These reasons are for people only, so malformed ones are skipped.
std::map<std::string, std::string> read_not_advertised(const json& file) {
  std::map<std::string, std::string> out;
  const json* const list = member(file, "not_advertised");
  if (list == nullptr || !list->is_array()) return out;
  for (const json& device : *list) {
    const json* const id = member(device, "id");
    const json* const reason = member(device, "reason");
    if (id != nullptr && id->is_string() && reason != nullptr && reason->is_string())
      out.emplace(id->get<std::string>(), reason->get<std::string>());
  }
  return out;
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

Result<AdvertisedResources> read_advertised_resources(std::string_view text) {
  const json file = json::parse(text, nullptr, false);
  if (!file.is_object()) return malformed("not a JSON object");
  const json* const version = member(file, "version");
  if (version == nullptr || *version != 2) return malformed("version: expected 2");
  AdvertisedResources out;
  if (const json* const generation = member(file, "state_generation")) {
    if (!generation->is_number_unsigned()) return malformed("state_generation: expected a number");
    out.state_generation = generation->get<std::uint64_t>();
  }
  const json* const resources = member(file, "resources");
  if (resources == nullptr || !resources->is_array()) return malformed("resources: expected a list");
  for (const json& resource : *resources) {
    const json* const name = member(resource, "name");
    if (name == nullptr || !name->is_string()) return malformed("name: expected a resource's name");
    const json* const devices = member(resource, "devices");
    if (devices == nullptr || !devices->is_array()) return malformed("devices: expected a list");
    out.resources.push_back(read_resource(name->get<std::string>(), resource));
    for (const json& device : *devices) {
      auto read = read_device(name->get<std::string>(), device);
      if (!read) return fail(std::move(read).error());
      out.devices.push_back(std::move(*read));
    }
  }
  out.not_advertised = read_not_advertised(file);
  out.standby = text_of(file, "standby");
  return out;
}

Result<std::optional<AdvertisedResources>> read_advertised_resources(const HostFs& host,
                                                                     const std::filesystem::path& file) {
  const auto text = host.read_file(file);
  if (!text && is_gone(text.error())) return std::optional<AdvertisedResources>();
  if (!text) return fail(Error(text.error()));
  auto read = read_advertised_resources(*text);
  if (!read) return fail(std::move(read).error());
  return std::optional(std::move(*read));
}

std::optional<std::uint32_t> iommu_group_of(const HostFs& host, const std::string& device) {
  for (const char* bus : {"pci", "mdev"}) {
    const auto name =
        host.link_name(std::filesystem::path("sys/bus") / bus / "devices" / device / "iommu_group");
    if (const auto number = name ? whole_number(*name) : std::nullopt) return number;
  }
  return std::nullopt;
}

const AdvertisedDevice* find_device(const HostFs& host, const AdvertisedResources& advertised,
                                    const std::string& device) {
  std::set<std::uint32_t> groups;
  if (const auto group = iommu_group_of(host, device)) groups.insert(*group);
  return advertised.find({device}, groups);
}

}  // namespace ferry::host
