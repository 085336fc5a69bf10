// SPDX-License-Identifier: Apache-2.0
// What tests of the allocation core are made of: a host that says what the test wants, and its devices.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kubevirt-plugin/device_check.h"
#include "kubevirt-plugin/offered_device.h"

namespace ferry::core_test {

using Ids = std::vector<std::string>;

/// A host that says what the test wants of a device, by its ID; otherwise the scan's word.
class TestCheck final : public DeviceCheck {
 public:
  std::map<std::string, std::string> problems;
  std::function<void(const std::string& id)> while_asked;

  std::vector<std::string> shared_nodes(std::span<const OfferedDevice> devices) const override {
    return devices.size() > 1 ? std::vector<std::string>{"/dev/shared"} : std::vector<std::string>();
  }
  std::map<std::string, std::uint32_t, std::less<>> groups;
  std::optional<std::uint32_t> group_of(std::string_view id) const override {
    const auto group = groups.find(id);
    return group == groups.end() ? std::nullopt : std::optional(group->second);
  }
  std::set<std::uint32_t> open;
  std::set<std::uint32_t> silent;
  mutable std::vector<std::uint32_t> asked;
  std::function<GroupAnswer()> ask_group(std::uint32_t group,
                                         std::vector<OfferedDevice> devices) const override {
    asked.push_back(group);
    return [this, group, devices = std::move(devices)]() -> GroupAnswer {
      // A test may have another answer for whoever comes meanwhile.
      const bool is_open = open.contains(group);
      GroupAnswer answer;
      for (const auto& offered : devices) {
        if (while_asked) while_asked(offered.id);
        const auto problem = problems.find(offered.id);
        if (problem == problems.end())
          answer.nodes.emplace_back(offered.nodes);
        else
          answer.nodes.emplace_back(fail(Errc::differs, problem->second));
      }
      if (is_open) return {.state = GroupAnswer::State::open};
      if (silent.contains(group)) return {.state = GroupAnswer::State::silent};
      return answer;
    };
  }
};

inline OfferedDevice device(const std::string& id, std::uint32_t group, std::optional<int> numa = {}) {
  return {.id = id,
          .model = "10de:2684",
          .driver = "vfio-pci",
          .iommu_group = group,
          .numa_node = numa,
          .nodes = {"/dev/vfio/vfio", "/dev/vfio/" + std::to_string(group)},
          .problem = {}};
}

inline Resource resource(const std::string& part, std::vector<OfferedDevice> devices,
                         EnvPrefix prefix = EnvPrefix::pci_resource) {
  return {.name = *ResourceName::parse("nvidia.com/" + part),
          .env_prefix = prefix,
          .devices = std::move(devices)};
}

}  // namespace ferry::core_test
