// SPDX-License-Identifier: Apache-2.0
#include "api/advertised_resources.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include <nlohmann/json.hpp>

#include "api/files.h"
#include "common/generation.h"
#include "common/text/json.h"
#include "common/text/json_fields.h"

namespace ferry::vfio {

template <typename Io, SameAs<FatalErrorsOf> Value>
void fields(Io& io, Value& errors) {
  io("function", errors.function);
  io("since", errors.since);
  io.or_default("binding", errors.binding);
}

}  // namespace ferry::vfio

namespace ferry::api {
namespace {

constexpr const char* kHint = "ferry plugin writes it: is it of the same version? A restart writes it anew";

}  // namespace

template <typename Io, SameAs<AdvertisedDevice> Value>
void fields(Io& io, Value& device) {
  io("id", device.id);
  io.or_default("healthy", device.healthy);
  io.or_default("reason", device.reason);
  io.or_null("numa_node", device.numa_node);
  io("iommu_group", device.iommu_group);
  io("allocated", device.allocated);
  io.or_default("awaits_release", device.awaits_release);
  io.or_default("held_with_group", device.held_with_group);
  if (Io::kReads || device.used_since) io.or_null("used_since", device.used_since);
  io.or_null("pod", device.pod);
}

template <typename Io, SameAs<AdvertisedPlace> Value>
void fields(Io& io, Value& place) {
  io("id", place.id);
  io.or_default("healthy", place.healthy);
  io.or_default("reason", place.reason);
}

template <typename Io, SameAs<NotAdvertised> Value>
void fields(Io& io, Value& device) {
  io("id", device.id);
  io.or_default("reason", device.reason);
}

namespace {

/// A resource with its devices, as the file has it.
struct Listed {
  AdvertisedResource resource = {};
  std::vector<AdvertisedDevice> devices = {};
};

template <typename Io, SameAs<Listed> Value>
void fields(Io& io, Value& listed) {
  io("name", listed.resource.name);
  io.or_default("env", listed.resource.env);
  io.or_default("registered", listed.resource.registered);
  io("devices", listed.devices);
  if (Io::kReads || listed.resource.places) io.or_null("places", listed.resource.places);
}

struct File {
  AdvertisedResources advertised = {};  ///< without its devices and resources
  std::vector<Listed> resources = {};
};

template <typename Io, SameAs<File> Value>
void fields(Io& io, Value& file) {
  io.version(kAdvertisedVersion);
  io.or_default("generation", file.advertised.generation);
  io.check("generation", file.advertised.generation <= kLastGeneration, kGenerationFault);
  io.or_default("pid", file.advertised.pid);
  io.or_default("state_generation", file.advertised.state_generation);
  io.check("state_generation", file.advertised.state_generation <= kLastGeneration, kGenerationFault);
  io("resources", file.resources);
  io.or_default("not_advertised", file.advertised.not_advertised);
  io.or_null("standby", file.advertised.standby);
  if (Io::kReads || !file.advertised.fatal_errors.empty())
    io.or_default("fatal_errors", file.advertised.fatal_errors);
}

/// The entries of a list. Empty: it is no list.
const std::vector<nlohmann::json>& entries(const nlohmann::json& object, std::string_view key) {
  static const std::vector<nlohmann::json> kNone;
  const auto* const list = json_at(object, key).get_ptr<const nlohmann::json::array_t*>();
  return list == nullptr ? kNone : *list;
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
  File file{.advertised = {.generation = advertised.generation,
                           .pid = advertised.pid,
                           .state_generation = advertised.state_generation,
                           .not_advertised = advertised.not_advertised,
                           .fatal_errors = advertised.fatal_errors,
                           .standby = advertised.standby}};
  for (const AdvertisedResource& resource : advertised.resources) {
    Listed& listed = file.resources.emplace_back(Listed{.resource = resource});
    std::ranges::copy_if(advertised.devices, std::back_inserter(listed.devices),
                         [&](const AdvertisedDevice& device) { return device.resource == resource.name; });
  }
  return json_text(written_fields(file));
}

Result<AdvertisedResources> read_advertised_resources(std::string_view text) {
  auto file = read_json(text, kAdvertisedFile, kHint, read_fields<File>);
  if (!file) return fail(std::move(file).error());
  AdvertisedResources out = std::move(file->advertised);
  for (auto& [resource, devices] : file->resources) {
    for (AdvertisedDevice& device : devices) {
      device.resource = resource.name;
      out.devices.push_back(std::move(device));
    }
    out.resources.push_back(std::move(resource));
  }
  return out;
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
      const bool allocated = json_at(device, "allocated") == true;
      const auto* const used_since = json_at(device, "used_since").get_ptr<const std::uint64_t*>();
      if (!allocated && used_since == nullptr) continue;
      const auto* const group = json_at(device, "iommu_group").get_ptr<const std::uint64_t*>();
      const bool fits = group != nullptr && *group <= std::numeric_limits<std::uint32_t>::max();
      out.devices.push_back({.resource = name,
                             .id = text_at(device, "id"),
                             .iommu_group = fits ? static_cast<std::uint32_t>(*group) : 0,
                             .allocated = allocated,
                             .pod = text_at(device, "pod")});
      if (used_since != nullptr) out.devices.back().used_since = *used_since;
    }
  }
  for (const nlohmann::json& errors : entries(*file, "fatal_errors")) {
    std::string fault;
    auto read = read_fields<FatalErrorsOf>(JsonObject(errors, fault));
    if (fault.empty()) out.fatal_errors.push_back(std::move(read));
  }
  return out;
}

}  // namespace ferry::api
