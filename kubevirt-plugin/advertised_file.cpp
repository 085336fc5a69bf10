// SPDX-License-Identifier: Apache-2.0
#include "kubevirt-plugin/advertised_file.h"

#include <algorithm>
#include <iterator>
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
                               .not_advertised = {not_advertised.begin(), not_advertised.end()},
                               .fatal_errors = {fatal_errors.begin(), fatal_errors.end()},
                               .standby = standby};
  for (const auto& listed : snapshot.resources) {
    const std::string name = listed->name.text();
    api::AdvertisedResource resource{.name = name,
                                     .env = env_name(listed->env_prefix, listed->name),
                                     .registered = registered.contains(name)};
    if (listed->places) {
      resource.places.emplace();
      for (const ListedDevice& place : listed->devices)
        resource.places->push_back({.id = place.id, .healthy = place.healthy, .reason = place.reason});
    } else {
      for (const ListedDevice& device : listed->devices) out.devices.emplace_back(device).resource = name;
    }
    std::ranges::copy_if(snapshot.unlisted, std::back_inserter(out.devices),
                         [&](const ListedDevice& device) { return device.resource == name; });
    out.resources.push_back(std::move(resource));
  }
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
