// SPDX-License-Identifier: Apache-2.0
#include "kubevirt-plugin/offered_file.h"

#include <unistd.h>

#include <nlohmann/json.hpp>

namespace ferry {

std::string offered_json(const Snapshot& snapshot, const std::set<std::string>& registered,
                         std::span<const NotOffered> not_offered, std::uint64_t state_generation) {
  using Json = nlohmann::ordered_json;
  auto resources = Json::array();
  for (const auto& resource : snapshot.resources) {
    auto devices = Json::array();
    for (const auto& device : resource->devices) {
      devices.push_back({{"id", device.id},
                         {"healthy", device.healthy()},
                         {"reason", device.reason},
                         {"numa_node", device.numa_node ? Json(*device.numa_node) : Json()},
                         {"iommu_group", device.iommu_group},
                         {"allocated", device.allocated}});
    }
    resources.push_back({{"name", resource->name.text()},
                         {"env", env_name(resource->env_prefix, resource->name)},
                         {"registered", registered.contains(resource->name.text())},
                         {"devices", std::move(devices)}});
  }
  auto left_out = Json::array();
  for (const auto& device : not_offered) left_out.push_back({{"id", device.id}, {"reason", device.reason}});
  const Json file = {{"version", 1},
                     {"generation", snapshot.generation},
                     {"pid", ::getpid()},
                     {"state_generation", state_generation},
                     {"resources", std::move(resources)},
                     {"not_offered", std::move(left_out)}};
  // A driver's text may be anything; a bad byte must not end the process.
  return file.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::set<std::string> kata_resources_of(std::string_view offered_file) {
  std::set<std::string> names;
  const auto file = nlohmann::json::parse(offered_file, nullptr, false);
  if (!file.is_object() || !file.contains("resources")) return names;
  const auto text_of = [](const nlohmann::json& resource, const char* key) {
    const auto entry = resource.find(key);
    return entry != resource.end() && entry->is_string() ? entry->get<std::string>() : std::string("none");
  };
  for (const auto& resource : file["resources"])
    if (resource.is_object() && text_of(resource, "env").empty()) names.insert(text_of(resource, "name"));
  return names;
}

}  // namespace ferry
