// SPDX-License-Identifier: Apache-2.0
// What tests of the allocation core are made of: a host that says what the test wants, and its devices.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kubevirt-plugin/allocation/allocation_core.h"
#include "kubevirt-plugin/discovery/device_check.h"
#include "kubevirt-plugin/discovery/scanned_device.h"

namespace ferry::core_test {

using Ids = std::vector<std::string>;

/// Allocates and waits for the answer.
inline Result<std::vector<plugin::Allocation>> allocate_from(plugin::AllocationCore& core,
                                                             std::string_view resource,
                                                             std::span<const Ids> containers) {
  std::promise<Result<std::vector<plugin::Allocation>>> answer;
  core.allocate(resource, containers, [&](auto allocated) { answer.set_value(std::move(allocated)); });
  return answer.get_future().get();
}

/// A host that says what the test wants of a device, by its ID; otherwise the scan's word.
class TestCheck final : public plugin::DeviceCheck {
 public:
  std::map<std::string, std::string> problems;
  std::function<void(const std::string& id)> while_asked;
  std::map<std::string, std::uint32_t, std::less<>> groups;
  std::map<std::string, std::uint32_t, std::less<>> numbers;  // of group_numbered()
  std::set<std::uint32_t> open;
  std::set<std::uint32_t> silent;
  mutable std::vector<std::uint32_t> asked;

  void ask(plugin::HandOut what, Answered answered) const override {
    plugin::HostAnswer answer;
    for (const auto group : what.groups) {
      asked.push_back(group);
      answer.groups[group] = open.contains(group)     ? plugin::GroupState::open
                             : silent.contains(group) ? plugin::GroupState::silent
                                                      : plugin::GroupState::closed;
    }
    for (const auto& devices : what.containers) {
      auto& container = answer.containers.emplace_back();
      for (const auto& device : devices) container.nodes.push_back(nodes_now(device));
      if (devices.size() > 1) container.shared = {"/dev/shared"};
    }
    const bool all_closed = std::ranges::all_of(
        answer.groups, [](const auto& one) { return one.second == plugin::GroupState::closed; });
    if (!all_closed) answer.containers.clear();
    answered(std::move(answer));
  }

  std::set<std::uint32_t> open_groups(const std::set<std::uint32_t>& those) const override {
    std::set<std::uint32_t> found;
    for (const auto group : those) {
      asked.push_back(group);
      if (open.contains(group) || silent.contains(group)) found.insert(group);
    }
    return found;
  }

  std::optional<std::uint32_t> group_of(std::string_view id) const override {
    const auto group = groups.find(id);
    return group == groups.end() ? std::nullopt : std::optional(group->second);
  }
  std::optional<std::uint32_t> group_numbered(std::string_view id) const override {
    const auto group = numbers.find(id);
    return group == numbers.end() ? std::nullopt : std::optional(group->second);
  }

 private:
  Result<std::vector<std::string>> nodes_now(const plugin::ScannedDevice& advertised) const {
    if (while_asked) while_asked(advertised.id);
    const auto problem = problems.find(advertised.id);
    if (problem != problems.end()) return fail(Errc::differs, problem->second);
    return advertised.nodes;
  }
};

inline plugin::ScannedDevice device(const std::string& id, std::uint32_t group,
                                    std::optional<int> numa = {}) {
  return {.id = id,
          .model = "10de:2684",
          .driver = "vfio-pci",
          .iommu_group = group,
          .numa_node = numa,
          .nodes = {"/dev/vfio/vfio", "/dev/vfio/" + std::to_string(group)},
          .problem = {}};
}

inline plugin::Resource resource(const std::string& part, std::vector<plugin::ScannedDevice> devices,
                                 plugin::EnvPrefix prefix = plugin::EnvPrefix::pci_resource) {
  return {.name = *plugin::ResourceName::parse("nvidia.com/" + part),
          .env_prefix = prefix,
          .devices = std::move(devices)};
}

}  // namespace ferry::core_test
