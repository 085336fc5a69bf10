// SPDX-License-Identifier: Apache-2.0
#include "kubevirt-plugin/advertised_file.h"

#include <unistd.h>

#include <nlohmann/json.hpp>

namespace ferry::plugin {
namespace {

// Null if there is no such entry.
nlohmann::json entry_of(const nlohmann::json& object, const char* key) {
  if (!object.is_object()) return {};
  const auto entry = object.find(key);
  return entry == object.end() ? nlohmann::json() : *entry;
}

}  // namespace

std::string advertised_json(const Snapshot& snapshot, const std::set<std::string>& registered,
                            std::span<const NotAdvertised> not_advertised, std::uint64_t state_generation,
                            std::span<const FatalErrorsOf> fatal_errors, const std::string& standby) {
  using Json = nlohmann::ordered_json;
  auto resources = Json::array();
  for (const auto& resource : snapshot.resources) {
    auto devices = Json::array();
    auto places = Json::array();
    for (const auto& device : resource->devices) {
      if (resource->places) {
        places.push_back({{"id", device.id}, {"healthy", device.healthy()}, {"reason", device.reason}});
        continue;
      }
      devices.push_back({{"id", device.id},
                         {"healthy", device.healthy()},
                         {"reason", device.reason},
                         {"numa_node", device.numa_node ? Json(*device.numa_node) : Json()},
                         {"iommu_group", device.iommu_group},
                         {"allocated", device.allocated},
                         {"awaits_release", device.awaits_release},
                         {"held_with_group", device.held_with_group},
                         {"pod", device.pod.empty() ? Json() : Json(device.pod)}});
    }
    for (const auto& device : snapshot.unlisted) {
      if (device.resource != resource->name.text()) continue;
      devices.push_back({{"id", device.id},
                         {"healthy", false},
                         {"reason", "still allocated, and not advertised now"},
                         {"numa_node", Json()},
                         {"iommu_group", device.iommu_group},
                         {"allocated", true},
                         {"awaits_release", true},
                         {"held_with_group", false},
                         {"pod", Json()}});
    }
    resources.push_back({{"name", resource->name.text()},
                         {"env", env_name(resource->env_prefix, resource->name)},
                         {"registered", registered.contains(resource->name.text())},
                         {"devices", std::move(devices)}});
    if (resource->places) resources.back()["places"] = std::move(places);
  }
  auto left_out = Json::array();
  for (const auto& device : not_advertised)
    left_out.push_back({{"id", device.id}, {"reason", device.reason}});
  Json file = {{"version", 2},
               {"generation", snapshot.generation},
               {"pid", ::getpid()},
               {"state_generation", state_generation},
               {"resources", std::move(resources)},
               {"not_advertised", std::move(left_out)},
               {"standby", standby.empty() ? Json() : Json(standby)}};
  for (const auto& [function, since, binding] : fatal_errors)
    file["fatal_errors"].push_back({{"function", function}, {"since", since}, {"binding", binding}});
  // A driver's text may contain any bytes, and an invalid one must not end the process.
  return file.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::vector<Holding> allocated_by(std::string_view advertised_file) {
  std::vector<Holding> allocated;
  const auto file = nlohmann::json::parse(advertised_file, nullptr, false);
  for (const auto& resource : entry_of(file, "resources")) {
    const auto name = entry_of(resource, "name");
    for (const auto& device : entry_of(resource, "devices")) {
      const auto id = entry_of(device, "id");
      if (name.is_string() && id.is_string() && entry_of(device, "allocated") == true)
        allocated.push_back({.resource = name.get<std::string>(), .ids = {id.get<std::string>()}});
    }
  }
  return allocated;
}

std::vector<NotAdvertised> unfit_by(std::string_view advertised_file) {
  std::vector<NotAdvertised> unfit;
  const auto file = nlohmann::json::parse(advertised_file, nullptr, false);
  for (const auto& resource : entry_of(file, "resources")) {
    for (const auto& device : entry_of(resource, "devices")) {
      const auto id = entry_of(device, "id");
      const auto reason = entry_of(device, "reason");
      if (id.is_string() && reason.is_string() && entry_of(device, "healthy") == false &&
          entry_of(device, "allocated") == false && entry_of(device, "awaits_release") != true)
        unfit.push_back({.id = id.get<std::string>(), .reason = reason.get<std::string>()});
    }
  }
  return unfit;
}

std::vector<FatalErrorsOf> fatal_errors_of(std::string_view advertised_file) {
  std::vector<FatalErrorsOf> found;
  const auto file = nlohmann::json::parse(advertised_file, nullptr, false);
  for (const auto& one : entry_of(file, "fatal_errors")) {
    const auto function = entry_of(one, "function");
    const auto since = entry_of(one, "since");
    auto binding = entry_of(one, "binding");
    if (binding.is_null()) binding = 0U;  // the writer did not know it
    if (!function.is_string() || !since.is_number_unsigned() || !binding.is_number_unsigned()) continue;
    found.push_back({.function = function.get<std::string>(),
                     .since = since.get<std::uint64_t>(),
                     .binding = binding.get<std::uint64_t>()});
  }
  return found;
}

std::set<std::string> kata_resources_of(std::string_view advertised_file) {
  std::set<std::string> names;
  const auto file = nlohmann::json::parse(advertised_file, nullptr, false);
  if (!file.is_object() || !file.contains("resources")) return names;
  const auto text_of = [](const nlohmann::json& resource, const char* key) {
    const auto entry = resource.find(key);
    return entry != resource.end() && entry->is_string() ? entry->get<std::string>() : std::string("none");
  };
  for (const auto& resource : file["resources"])
    if (resource.is_object() && text_of(resource, "env").empty()) names.insert(text_of(resource, "name"));
  return names;
}

}  // namespace ferry::plugin
