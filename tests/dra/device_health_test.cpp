// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>

#include <gmock/gmock.h>

#include "dra/server/dra_server.h"
#include "dra/slices/publication.h"
#include "tests/dra/some_gpus.h"

namespace ferry::dra {
namespace {

using test::l4;
using test::node_with;

DeviceHealth health_of(const NodeModel& node, const std::string& device) {
  const auto all = device_health(node, publication_of(node));
  const auto found = std::ranges::find(all, device, &DeviceHealth::device);
  return found == all.end() ? DeviceHealth{.pool = "none", .device = "none"} : *found;
}

TEST(DeviceHealthTest, IsThatOfTheGpu) {
  NodeModel node = node_with({l4("0000:3b:00.0", 42), l4("0000:af:00.0", 44)});
  node.gpus[1].health = GpuHealth::unhealthy;
  node.gpus[1].reason = "fatal PCIe errors";
  EXPECT_EQ(health_of(node, "whole-0000-3b-00-0"),
            (DeviceHealth{.pool = "node7/gpu-ferry", .device = "whole-0000-3b-00-0"}));
  EXPECT_NE(health_of(node, "vgpu-0000-af-00-0-1150-0").message, "");
  EXPECT_EQ(health_of(node, "whole-0000-af-00-0").message, "GPU 0000:af:00.0: fatal PCIe errors");
}

TEST(DeviceHealthTest, OfAWholeGroupIsThatOfItsWorstGpu) {
  NodeModel node = node_with({l4("0000:3b:00.0", 42), l4("0000:3c:00.0", 42)});
  node.gpus[1].health = GpuHealth::unhealthy;
  node.gpus[1].reason = "fatal PCIe errors";
  EXPECT_EQ(health_of(node, "whole-0000-3b-00-0").message, "GPU 0000:3c:00.0: fatal PCIe errors");
  EXPECT_EQ(health_of(node, "vgpu-0000-3b-00-0-1150-0").message, "");
}

TEST(DeviceHealthTest, OfAGroupIsNotThatOfAGpuWithoutAGroup) {
  NodeModel node = node_with({l4("0000:3b:00.0", 0), l4("0000:3c:00.0", 0), l4("0000:3d:00.0", 0)});
  for (Gpu* gpu : {&node.gpus[1], &node.gpus[2]}) {
    gpu->iommu_group.reset();
    gpu->health = GpuHealth::unhealthy;
    gpu->reason = "it has no IOMMU group";
  }
  EXPECT_EQ(health_of(node, "whole-0000-3b-00-0").message, "");
  EXPECT_EQ(health_of(node, "whole-0000-3c-00-0").message, "GPU 0000:3c:00.0: it has no IOMMU group");
}

TEST(DeviceHealthTest, OfFurtherVgpusIsBadOnAGpuThatMakesNone) {
  NodeModel node = node_with({l4("0000:3b:00.0", 42)});
  test::hold(node, "vgpu-0000-3b-00-0-1150-0", "a");
  node.gpus[0].vgpu_reason = "its virtual functions are missing";
  EXPECT_EQ(health_of(node, "vgpu-0000-3b-00-0-1150-0").message, "");
  EXPECT_EQ(health_of(node, "whole-0000-3b-00-0").message, "");
  EXPECT_EQ(health_of(node, "vgpu-0000-3b-00-0-1150-1").message,
            "GPU 0000:3b:00.0: its virtual functions are missing");
}

TEST(DeviceHealthTest, OfADeviceThatAnotherProgramHasTakenAwayIsBad) {
  NodeModel node = node_with({l4("0000:3b:00.0", 42)});
  test::hold(node, "vgpu-0000-3b-00-0-1150-0", "a");
  test::hold(node, "vgpu-0000-3b-00-0-1150-1", "b");
  node.gpus[0].lost_claims = {"b", "of-an-earlier-boot"};
  EXPECT_EQ(health_of(node, "vgpu-0000-3b-00-0-1150-0").message, "");
  EXPECT_EQ(health_of(node, "vgpu-0000-3b-00-0-1150-1").message,
            "another program has taken away its device of GPU 0000:3b:00.0");
  EXPECT_EQ(health_of(node, "vgpu-0000-3b-00-0-1150-2").message, "");
}

TEST(DeviceHealthTest, OfAGpuThatIsGoneIsBad) {
  NodeModel node = node_with({l4("0000:3b:00.0", 42)});
  test::hold(node, "whole-0000-3b-00-0", "a");
  node.gpus.clear();
  EXPECT_EQ(health_of(node, "whole-0000-3b-00-0").message, "GPU 0000:3b:00.0 is gone");
}

TEST(DeviceHealthTest, OfAWholeDeviceIsBadOnceOneOfItsGpusIsGone) {
  NodeModel both = node_with({l4("0000:3b:00.0", 42), l4("0000:3c:00.0", 42), l4("0000:af:00.0", 44)});
  test::hold(both, "whole-0000-3b-00-0", "a");
  test::hold(both, "whole-0000-af-00-0", "b");
  NodeModel node = both;
  node.gpus.erase(node.gpus.begin() + 1);
  node.gpus[0].unplugged = {"0000:3c:00.0"};
  EXPECT_EQ(health_of(node, "whole-0000-3b-00-0").message, "GPU 0000:3c:00.0 of its IOMMU group is gone");
  EXPECT_EQ(health_of(node, "whole-0000-af-00-0").message, "");
  node = both;
  node.gpus.erase(node.gpus.begin());
  EXPECT_EQ(health_of(node, "whole-0000-3b-00-0").message, "GPU 0000:3b:00.0 is gone");
}

TEST(LossOfADevice, IsThatOfItsClaimAlone) {
  NodeModel node = node_with({l4("0000:3b:00.0", 42), l4("0000:af:00.0", 44)});
  test::hold(node, "vgpu-0000-3b-00-0-1150-0", "a");
  test::hold(node, "whole-0000-af-00-0", "b");
  for (const HeldDevice& held : node.held) EXPECT_EQ(loss_of(node, held), "");
  node.gpus[0].unplugged = {"0000:3c:00.0"};
  EXPECT_EQ(loss_of(node, node.held[0]), "") << "a vGPU is on one GPU";
  node.gpus[0].lost_claims = {"a"};
  EXPECT_EQ(loss_of(node, node.held[0]), "another program has taken away its device of GPU 0000:3b:00.0");
  node.gpus[1].lost_claims = {"a"};
  EXPECT_EQ(loss_of(node, node.held[1]), "");
  node.gpus.clear();
  EXPECT_EQ(loss_of(node, node.held[0]), "GPU 0000:3b:00.0 is gone");
  EXPECT_EQ(loss_of(node, node.held[1]), "GPU 0000:af:00.0 is gone");
}

}  // namespace
}  // namespace ferry::dra
