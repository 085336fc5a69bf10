// SPDX-License-Identifier: Apache-2.0
// A core that allocates the devices of a played host.
#pragma once

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kubevirt-plugin/allocation/allocation_core.h"
#include "tests/kubevirt-plugin/core_fixture.h"

namespace ferry::plugin {

/// Two cards, each with its audio in its group; a vGPU.
class AllocationCoreTest : public testing::Test {
 protected:
  static std::vector<Resource> machine() {
    return {core_test::resource(
                "CARD", {core_test::device("0000:01:00.0", 15), core_test::device("0000:02:00.0", 16)}),
            core_test::resource(
                "AUDIO", {core_test::device("0000:01:00.1", 15), core_test::device("0000:02:00.1", 16)}),
            core_test::resource("VGPU", {core_test::device("uuid-1", 70)}, EnvPrefix::mdev_pci_resource)};
  }
  void SetUp() override { core.replace(machine()); }

  Result<std::vector<Allocation>> allocate(const std::string& part, const core_test::Ids& ids) {
    return core_test::allocate_from(core, "nvidia.com/" + part, std::vector<core_test::Ids>{ids});
  }
  /// By a list that was asked for just now.
  void reconcile(std::vector<Holding> held, AllocationCore::Ticket settled) {
    core.reconcile(held, {.asked = core.ticket(), .settled = settled});
  }
  std::string reason(const std::string& id) const {
    for (const auto& resource : core.snapshot()->resources)
      for (const auto& device : resource->devices)
        if (device.id == id) return device.reason;
    return "not listed";
  }
  std::vector<std::string> held_with_group() const {
    std::vector<std::string> ids;
    for (const auto& resource : core.snapshot()->resources)
      for (const auto& device : resource->devices)
        if (device.held_with_group) ids.push_back(device.id);
    return ids;
  }
  bool allocated(const std::string& id) const {
    for (const auto& resource : core.snapshot()->resources)
      for (const auto& device : resource->devices)
        if (device.id == id) return device.allocated;
    return false;
  }

  core_test::TestCheck check;
  int doubts = 0;
  AllocationCore core{check, {.changed = {}, .doubted = [this] { ++doubts; }}};
};

}  // namespace ferry::plugin
