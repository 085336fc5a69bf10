// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "dra/slices/publication.h"
#include "tests/dra/some_gpus.h"

namespace ferry::dra {
namespace {

using test::hold;
using test::l4;
using test::mixed;
using test::node_with;

class Availability : public testing::Test {
 protected:
  /// Empty: the claim can have them.
  std::string refusal(const std::vector<std::string>& devices, const std::string& claim) const {
    const auto available = check_available(node, publication_of(node), devices, claim);
    return available ? "" : available.error().message;
  }
  NodeModel node = node_with({l4("0000:3b:00.0", 42), mixed("0000:65:00.0", 5)});
};

TEST_F(Availability, OfAFreeGpu) {
  EXPECT_EQ(refusal({"vgpu-0000-3b-00-0-1150-2", "vgpu-0000-65-00-0-590-2", "whole-0000-3b-00-0"}, "a"),
            "whole-0000-3b-00-0: the claim with UID a has vgpu-0000-3b-00-0-1150-2 of the same IOMMU group");
  EXPECT_EQ(refusal({"vgpu-0000-3b-00-0-1150-2", "vgpu-0000-65-00-0-590-2"}, "a"), "");
  EXPECT_EQ(refusal({"vgpu-0000-3b-00-0-9-9"}, "a"),
            "vgpu-0000-3b-00-0-9-9: this node has no such device now");
}

TEST_F(Availability, OfAGpuBesideOnesWithoutAGroup) {
  node = node_with({l4("0000:3b:00.0", 0), l4("0000:3c:00.0", 0), l4("0000:3d:00.0", 0)});
  node.gpus[1].iommu_group.reset();
  node.gpus[2].iommu_group.reset();
  hold(node, "vgpu-0000-3c-00-0-1150-0", "a");
  EXPECT_EQ(refusal({"whole-0000-3b-00-0"}, "b"), "");
  EXPECT_EQ(refusal({"whole-0000-3d-00-0"}, "b"), "") << "its health alone keeps claims from it";
}

TEST_F(Availability, OfADeviceOfAnotherClaim) {
  hold(node, "vgpu-0000-3b-00-0-1150-2", "a");
  EXPECT_EQ(refusal({"vgpu-0000-3b-00-0-1150-2"}, "a"), "") << "the kubelet repeats its calls";
  EXPECT_EQ(refusal({"vgpu-0000-3b-00-0-1150-2"}, "b"),
            "vgpu-0000-3b-00-0-1150-2: the claim with UID a still has it");
  EXPECT_EQ(refusal({"whole-0000-3b-00-0"}, "b"),
            "whole-0000-3b-00-0: the claim with UID a has vgpu-0000-3b-00-0-1150-2 of the same IOMMU group");
}

TEST_F(Availability, OfAnotherSize) {
  hold(node, "vgpu-0000-3b-00-0-1150-2", "a");
  EXPECT_EQ(
      refusal({"vgpu-0000-3b-00-0-1152-0"}, "b"),
      "vgpu-0000-3b-00-0-1152-0: the vGPUs of GPU 0000:3b:00.0 have 6144 MiB each now, and this one needs "
      "12288 MiB");
  EXPECT_EQ(refusal({"vgpu-0000-3b-00-0-1150-0"}, "b"), "");
  hold(node, "vgpu-0000-65-00-0-590-2", "a");
  EXPECT_EQ(refusal({"vgpu-0000-65-00-0-594-8"}, "b"), "") << "that GPU has mixed sizes";
}

TEST_F(Availability, OfMemoryThatAnotherVgpuHas) {
  hold(node, "vgpu-0000-65-00-0-590-2", "a");
  EXPECT_EQ(refusal({"vgpu-0000-65-00-0-594-0"}, "b"),
            "vgpu-0000-65-00-0-594-0: it needs 1 of the counter unit-01, and claims use 1 of 1");
}

TEST_F(Availability, OfAGpuThatIsNotReady) {
  node.gpus[0].health = GpuHealth::unhealthy;
  node.gpus[0].reason = "fatal PCIe errors";
  const std::vector<std::string> devices = {"vgpu-0000-3b-00-0-1150-2"};
  const auto available = check_available(node, publication_of(node), devices, "a");
  ASSERT_FALSE(available);
  EXPECT_EQ(available.error().code, Errc::refused);
  EXPECT_EQ(
      available.error().text(),
      "vgpu-0000-3b-00-0-1150-2: GPU 0000:3b:00.0 is unhealthy: fatal PCIe errors; the claim waits until "
      "the GPU is ready");
}

TEST_F(Availability, OfAGpuThatMakesNoVgpus) {
  node.gpus[0].vgpu_reason = "its 16 virtual functions are missing";
  const std::vector<std::string> vgpu = {"vgpu-0000-3b-00-0-1150-2"};
  const auto refused = check_available(node, publication_of(node), vgpu, "a");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message,
            "vgpu-0000-3b-00-0-1150-2: GPU 0000:3b:00.0 makes no vGPUs now: its 16 virtual functions are "
            "missing");
  const std::vector<std::string> whole = {"whole-0000-3b-00-0"};
  EXPECT_TRUE(check_available(node, publication_of(node), whole, "a"));
}

TEST_F(Availability, OfAnAddressThatKubevirtCannotTake) {
  Gpu mediated = mixed("10000:65:00.0", 8);
  mediated.whole = false;
  node = node_with({l4("10000:3b:00.0", 42), mediated});
  for (const char* const name : {"whole-10000-3b-00-0", "vgpu-10000-3b-00-0-1150-0"}) {
    const std::vector<std::string> devices = {name};
    const auto available = check_available(node, publication_of(node), devices, "a");
    ASSERT_FALSE(available) << name;
    EXPECT_EQ(available.error().code, Errc::unsupported);
    EXPECT_EQ(available.error().message, std::string(name) +
                                             ": the PCI domain of GPU 10000:3b:00.0 has more than four "
                                             "digits, and KubeVirt takes no such address");
  }
  EXPECT_EQ(refusal({"vgpu-10000-65-00-0-590-2"}, "a"), "") << "KubeVirt takes its UUID";
}

TEST_F(Availability, OfADeviceWhosePolicyChangedAfterItsAllocation) {
  node.gpus[0].types[0].allowed = false;
  const std::string device = "vgpu-0000-3b-00-0-1150-2";
  EXPECT_EQ(refusal({device}, "a"), device + ": this node has no such device now");
  node.allocated = {device};
  EXPECT_EQ(refusal({device}, "a"), "");
}

}  // namespace
}  // namespace ferry::dra
