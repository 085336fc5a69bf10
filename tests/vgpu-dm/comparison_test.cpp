// SPDX-License-Identifier: Apache-2.0
#include "vgpu-dm/plan/comparison.h"

#include <gmock/gmock.h>

#include "tests/vgpu-dm/gpu_node.h"

namespace ferry::vgpu {
namespace {

using test::GpuNode;
using test::on;
using test::profile;

constexpr const char* kA = "5b6c0f0e-3b1d-4f0e-9a57-2f6f5f1f7a10";
constexpr const char* kB = "5b6c0f0e-3b1d-4f0e-9a57-2f6f5f1f7a11";

class Comparison : public testing::Test {
 protected:
  std::string difference(const Profile& desired) {
    const auto result = assert_profile(desired, node.snapshot().inventory);
    if (result) return "";
    EXPECT_EQ(result.error().code, Errc::differs);
    return result.error().message;
  }
  GpuNode node;
};

TEST_F(Comparison, AgreesWhenEachGpuHasWhatItsItemAsks) {
  node.mdev.add_device(GpuNode::kFirst, "nvidia-232", kA);
  node.mdev.add_device(GpuNode::kFirst, "nvidia-232", kB);
  EXPECT_EQ(difference(profile("  - {devices: [0], vgpu-devices: {T4-4Q: 2}}\n"
                               "  - {devices: [1, 2], vgpu-devices: {}}\n")),
            "");
}

TEST_F(Comparison, SaysWhatIsDesiredAndWhatIsThere) {
  node.mdev.add_device(GpuNode::kFirst, "nvidia-232", kA);
  node.mdev.add_device(GpuNode::kFirst, "nvidia-319", kB);
  EXPECT_EQ(
      difference(profile("  - {devices: all, vgpu-devices: {}}\n"
                         "  - {devices: [0, 1], vgpu-devices: {T4-4Q: 2}}\n")),
      "'mix' is not what this node carries: GPU 0 (0000:05:00.0): expected 2 x T4-4Q, found 1 x T4-4C, 1 x "
      "T4-4Q; GPU 1 (0000:06:00.0): expected 2 x T4-4Q, found none");
}

TEST_F(Comparison, CountsMoreThanAskedAsADifference) {
  node.mdev.add_device(GpuNode::kFirst, "nvidia-232", kA);
  node.mdev.add_device(GpuNode::kFirst, "nvidia-232", kB);
  EXPECT_EQ(difference(profile("  - {devices: all, vgpu-devices: {}}\n"
                               "  - {devices: [0], vgpu-devices: {T4-4Q: 1}}\n")),
            "'mix' is not what this node carries: GPU 0 (0000:05:00.0): expected 1 x T4-4Q, found 2 x T4-4Q");
}

TEST_F(Comparison, HoldsEveryGpuOfTheNodeAgainstTheProfile) {
  EXPECT_EQ(difference(on("[0, 1]", "{}")),
            "'mix' is not what this node carries: GPU 2 (0000:07:00.0): no item of 'mix' is for it");
}

TEST_F(Comparison, LetsTheLastOfSeveralItemsDecide) {
  node.mdev.add_device(GpuNode::kFirst, "nvidia-232", kA);
  EXPECT_EQ(difference(profile("  - {devices: all, vgpu-devices: {T4-8Q: 2}}\n"
                               "  - {devices: all, vgpu-devices: {}}\n"
                               "  - {devices: [0], vgpu-devices: {T4-4Q: 1}}\n")),
            "");
  EXPECT_THAT(difference(profile("  - {devices: [0], vgpu-devices: {T4-4Q: 1}}\n"
                                 "  - {devices: all, vgpu-devices: {}}\n")),
              testing::HasSubstr("GPU 0 (0000:05:00.0): expected none, found 1 x T4-4Q"));
}

TEST_F(Comparison, ComparesTypesByWhatTheirNamesMean) {
  node.mdev.add_parent(GpuNode::kSecond,
                       {{"nvidia-900", "NVIDIA RTX Pro 6000 Blackwell DC-2-48Q", 49152, 1}});
  node.mdev.add_device(GpuNode::kSecond, "nvidia-900", kA);
  EXPECT_EQ(difference(profile("  - {devices: all, vgpu-devices: {}}\n"
                               "  - {devices: [1], vgpu-devices: {DC-2-48QGFX: 1}}\n")),
            "");
}

TEST_F(Comparison, DoesNotCountWhatNoDriverHasTaken) {
  node.mdev.leave_driverless = true;
  node.mdev.add_device(GpuNode::kFirst, "nvidia-232", kA);
  EXPECT_THAT(difference(on("all", "{T4-4Q: 1}")),
              testing::HasSubstr("GPU 0 (0000:05:00.0): expected 1 x T4-4Q"));
}

TEST_F(Comparison, AgreesWithNothingThatCannotBeRead) {
  node.mdev.add_device(GpuNode::kFirst, "nvidia-232", kA);
  const std::string device = std::string("sys/devices/pci0000:00/0000:05:00.0/") + kA;
  node.kernel.remove(device + "/mdev_type");
  node.kernel.file(device + "/mdev_type", "");
  EXPECT_THAT(difference(on("all", "{}")), testing::HasSubstr("GPU 0 (0000:05:00.0): read link "));
}

TEST_F(Comparison, OfANodeWithoutGpusAgrees) {
  EXPECT_TRUE(assert_profile(on("all", "{T4-4Q: 1}"), mdev::VgpuInventory{}));
}

TEST_F(Comparison, IsGivenForEachGpu) {
  const auto comparisons = judge(on("[0]", "{T4-4Q: 1}"), node.snapshot().inventory);
  ASSERT_EQ(comparisons.size(), 3U);
  EXPECT_EQ(comparisons[0].gpu, test::at(GpuNode::kFirst));
  EXPECT_FALSE(comparisons[0].agrees);
  EXPECT_EQ(text(comparisons[0].desired), "1 x T4-4Q");
  EXPECT_EQ(text(comparisons[0].found), "none");
  EXPECT_EQ(comparisons[2].index, 2U);
}

}  // namespace
}  // namespace ferry::vgpu
