// SPDX-License-Identifier: Apache-2.0
#include "kubevirt-plugin/cdi_entries.h"

#include <algorithm>

namespace ferry {
namespace {

using Key = CdiEntries::Key;

std::set<Key> allocated(const Snapshot& snapshot) {
  std::set<Key> keys;
  for (const auto& resource : snapshot.resources)
    for (const auto& device : resource->devices)
      if (device.allocated) keys.emplace(resource->name.text(), device.id);
  for (const auto& device : snapshot.unlisted) keys.emplace(device.resource, device.id);
  return keys;
}

/// Adds the devices that `resources` does not contain.
void add_missing(std::vector<Resource>& resources, std::span<const Resource> others) {
  for (const auto& other : others) {
    if (other.env_prefix != EnvPrefix::none) continue;
    auto into = std::ranges::find(resources, other.name, &Resource::name);
    if (into == resources.end())
      into = resources.insert(into, {.name = other.name, .env_prefix = other.env_prefix, .devices = {}});
    for (const auto& device : other.devices)
      if (std::ranges::find(into->devices, device.id, &OfferedDevice::id) == into->devices.end())
        into->devices.push_back(device);
    std::ranges::sort(into->devices, {}, &OfferedDevice::id);
  }
}

}  // namespace

void CdiEntries::replace(std::span<const Resource> found, std::span<const Resource> offered) {
  offered_.clear();
  for (const auto& resource : offered)
    for (const auto& device : resource.devices) offered_.emplace(resource.name.text(), device.id);
  const std::vector<Resource> before = std::exchange(resources_, {});
  for (const auto& resources : {offered, found, std::span<const Resource>(before)})
    add_missing(resources_, resources);
}

bool CdiEntries::drop_released(const Snapshot& snapshot) {
  const auto held = allocated(snapshot);
  bool dropped = false;
  for (auto& resource : resources_) {
    dropped |= std::erase_if(resource.devices, [&](const OfferedDevice& device) {
                 const Key key(resource.name.text(), device.id);
                 return !offered_.contains(key) && !held.contains(key);
               }) != 0;
  }
  return dropped;
}

}  // namespace ferry
