// SPDX-License-Identifier: Apache-2.0
#include "kubevirt-plugin/cdi/cdi_files.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "api/own_cdi_files.h"
#include "vfio/pci/vm_nodes.h"

namespace ferry::plugin {

std::string cdi_spec(const Resource& resource, const NodeMode& mode_of) {
  std::string devices;
  for (const auto& device : resource.devices) {
    if (device.nodes.empty()) continue;
    devices += fmt::format("- name: \"{}\"\n  containerEdits:\n    deviceNodes:\n", device.id);
    for (const auto& node : device.nodes) {
      devices += fmt::format("    - path: {}\n", node);
      // The mode is in decimal, because readers of YAML 1.1 and 1.2 disagree about 0600.
      if (const auto mode = mode_of(node)) devices += fmt::format("      fileMode: {:d}\n", *mode);
    }
  }
  if (devices.empty()) return {};
  // A "." in the class is allowed from 0.6.0 on.
  const bool dotted = resource.name.name().find('.') != std::string_view::npos;
  return fmt::format("{}cdiVersion: \"{}\"\nkind: {}\ndevices:\n{}", api::kPluginCdiHead,
                     dotted ? "0.6.0" : "0.5.0", resource.name.text(), devices);
}

std::vector<CdiFailure> CdiFiles::update(std::span<const Resource> resources,
                                         const std::set<std::string>& held) {
  std::vector<CdiFailure> failures;
  const auto note = [&](const std::string& resource, Result<> done) {
    if (!done) failures.push_back({.resource = resource, .error = std::move(done).error()});
  };
  std::set<std::string> current;
  for (const auto& resource : resources) {
    if (resource.env_prefix != EnvPrefix::none) continue;
    const std::string content =
        cdi_spec(resource, [this](const std::string& node) { return vfio::node_mode(host_, node); });
    if (content.empty()) continue;
    std::string name = resource.name.text() + ".yaml";  // "nvidia.com-pgpu.yaml"
    std::ranges::replace(name, '/', '-');
    current.insert(name);
    if (host_.read_file(directory_ / name).value_or("") != content)
      note(resource.name.text(), host_.write_file(directory_ / name, content));
  }
  for (const auto& name : own_files())
    if (!current.contains(name) && !held.contains(kind_of(name)))
      note({}, host_.remove_file(directory_ / name));
  return failures;
}

std::vector<std::string> CdiFiles::own_files() const {
  auto names = host_.list(directory_).value_or(std::vector<std::string>{});
  std::erase_if(names, [&](const std::string& name) {
    return !name.ends_with(".yaml") ||
           !host_.read_file(directory_ / name).value_or("").starts_with(api::kPluginCdiHead);
  });
  return names;
}

std::string CdiFiles::kind_of(const std::string& file) const {
  constexpr std::string_view kKey = "\nkind: ";
  const std::string text = host_.read_file(directory_ / file).value_or("");
  const auto at = text.find(kKey);
  if (at == std::string::npos) return {};
  const auto begin = at + kKey.size();
  return text.substr(begin, text.find('\n', begin) - begin);
}

std::set<std::string> CdiFiles::resources() const {
  std::set<std::string> kinds;
  for (const auto& name : own_files())
    if (auto kind = kind_of(name); !kind.empty()) kinds.insert(std::move(kind));
  return kinds;
}

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
      if (std::ranges::find(into->devices, device.id, &ScannedDevice::id) == into->devices.end())
        into->devices.push_back(device);
    std::ranges::sort(into->devices, {}, &ScannedDevice::id);
  }
}

}  // namespace

void CdiEntries::replace(std::span<const Resource> found, std::span<const Resource> advertised) {
  advertised_.clear();
  for (const auto& resource : advertised)
    for (const auto& device : resource.devices) advertised_.emplace(resource.name.text(), device.id);
  const std::vector<Resource> before = std::exchange(resources_, {});
  for (const auto& resources : {advertised, found, std::span<const Resource>(before)})
    add_missing(resources_, resources);
}

bool CdiEntries::drop_released(const Snapshot& snapshot) {
  const auto held = allocated(snapshot);
  bool dropped = false;
  for (auto& resource : resources_) {
    dropped |= std::erase_if(resource.devices, [&](const ScannedDevice& device) {
                 const Key key(resource.name.text(), device.id);
                 return !advertised_.contains(key) && !held.contains(key);
               }) != 0;
  }
  return dropped;
}

void CdiPublisher::begin(std::set<std::string> listed) {
  former_ = std::move(listed);
  former_.merge(files_.resources());
  core_.came_before(former_);
}

bool CdiPublisher::replace(std::span<const Resource> found, std::vector<Resource>& advertised,
                           bool allocations_known) {
  entries_.replace(found, advertised);
  const auto failures = files_.update(entries_.resources(), former_in_use(allocations_known));
  for (const auto& [failed, error] : failures) {
    spdlog::error("{}", error.message);
    for (auto& resource : advertised) {
      if (resource.name.text() != failed) continue;
      for (auto& device : resource.devices)
        device.problem = "Kata would not find it, without its CDI specification: " + error.message;
    }
  }
  return failures.empty();
}

std::set<std::string> CdiPublisher::former_in_use(bool allocations_known) const {
  auto in_use = former_;
  if (allocations_known)
    std::erase_if(in_use, [this](const std::string& name) { return !core_.is_claimed(name); });
  return in_use;
}

bool CdiPublisher::drop_released(bool allocations_known) {
  if (!allocations_known) return true;
  const bool dropped = entries_.drop_released(*core_.snapshot());
  const auto in_use = former_in_use(allocations_known);
  if (!dropped && in_use == former_) return true;
  const auto failures = files_.update(entries_.resources(), in_use);
  for (const auto& failure : failures) spdlog::error("{}", failure.error.message);
  if (failures.empty()) former_ = in_use;  // the dropped resources do not come back
  return failures.empty();
}

}  // namespace ferry::plugin
