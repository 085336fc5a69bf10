// SPDX-License-Identifier: Apache-2.0
#include "kubevirt-plugin/advertised_file.h"

#include <unistd.h>
#include <utility>

#include <spdlog/spdlog.h>

namespace ferry::plugin {

api::AdvertisedResources advertised_resources(const Snapshot& snapshot,
                                              const std::set<std::string>& registered,
                                              std::span<const NotAdvertised> not_advertised,
                                              std::uint64_t state_generation,
                                              std::span<const api::FatalErrorsOf> fatal_errors,
                                              const std::string& standby) {
  api::AdvertisedResources out{.generation = snapshot.generation,
                               .pid = ::getpid(),
                               .state_generation = state_generation,
                               .fatal_errors = {fatal_errors.begin(), fatal_errors.end()},
                               .standby = standby};
  for (const auto& listed : snapshot.resources) {
    const std::string name = listed->name.text();
    api::AdvertisedResource resource{.name = name,
                                     .env = env_name(listed->env_prefix, listed->name),
                                     .registered = registered.contains(name)};
    if (listed->places) resource.places.emplace();
    for (const auto& device : listed->devices) {
      if (listed->places) {
        resource.places->push_back({.id = device.id, .healthy = device.healthy(), .reason = device.reason});
        continue;
      }
      out.devices.push_back({.resource = name,
                             .id = device.id,
                             .iommu_group = device.iommu_group,
                             .numa_node = device.numa_node,
                             .allocated = device.allocated,
                             .healthy = device.healthy(),
                             .reason = device.reason,
                             .awaits_release = device.awaits_release,
                             .held_with_group = device.held_with_group,
                             .used_since = device.used_since,
                             .pod = device.pod});
    }
    for (const auto& device : snapshot.unlisted) {
      if (device.resource == name)
        out.devices.push_back({.resource = name,
                               .id = device.id,
                               .iommu_group = device.iommu_group,
                               .allocated = true,
                               .healthy = false,
                               .reason = "still allocated, and not advertised now",
                               .awaits_release = true});
    }
    out.resources.push_back(std::move(resource));
  }
  for (const auto& device : not_advertised)
    out.not_advertised.push_back({.id = device.id, .reason = device.reason});
  return out;
}

api::AdvertisedResources read_former(const HostFs& host, const std::filesystem::path& file) {
  auto text = host.read_file(file);
  if (!text && is_gone(text.error())) return {};
  auto read = text ? api::read_allocations(*text) : fail(std::move(text).error());
  if (read) return std::move(*read);
  spdlog::warn("the allocations of the earlier ferry plugin are unknown until the kubelet lists its pods: {}",
               read.error().message);
  return {};
}

std::vector<Holding> allocated_by(const api::AdvertisedResources& advertised) {
  std::vector<Holding> allocated;
  for (const auto& device : advertised.devices)
    if (device.allocated) allocated.push_back({.resource = device.resource, .ids = {device.id}});
  return allocated;
}

Allocations::UseCounts used_by(const api::AdvertisedResources& advertised) {
  Allocations::UseCounts used;
  for (const auto& device : advertised.devices)
    if (device.used_since) used.emplace(device.id, *device.used_since);
  return used;
}

std::vector<NotAdvertised> unfit_by(const api::AdvertisedResources& advertised) {
  std::vector<NotAdvertised> unfit;
  for (const auto& device : advertised.devices)
    if (!device.healthy && !device.allocated && !device.awaits_release && !device.reason.empty())
      unfit.push_back({.id = device.id, .reason = device.reason});
  return unfit;
}

std::set<std::string> kata_resources_of(const api::AdvertisedResources& advertised) {
  std::set<std::string> names;
  for (const auto& resource : advertised.resources)
    if (resource.env.empty()) names.insert(resource.name);
  return names;
}

}  // namespace ferry::plugin
