// SPDX-License-Identifier: Apache-2.0
#include <deque>

#include <gmock/gmock.h>

#include "tests/support/must.h"
#include "tests/vgpu-dm/gpu_node.h"
#include "vgpu-dm/plan/gpu_preparation.h"

namespace ferry::vgpu {
namespace {

using test::code_of;
using test::hint_of;
using test::message_of;
using testing::ElementsAre;
using testing::IsEmpty;

/// The profiles that an H200 showed, as it shows them empty, with the places that NVIDIA's guide to MIG
/// gives.
mdev::ManagedGpu h200() {
  const std::vector<std::uint32_t> kEach = {0, 1, 2, 3, 4, 5, 6};
  return {
      .vgpu_host = true,
      .mig = mdev::GpuSwitch::on,
      .mig_pending = mdev::GpuSwitch::on,
      .profiles =
          {{.id = 0, .name = "7g.141gb", .most = 1, .left = 1, .slices = 7, .size = 8, .starts = {0}},
           {.id = 5, .name = "4g.71gb", .most = 1, .left = 1, .slices = 4, .size = 4, .starts = {0}},
           {.id = 9, .name = "3g.71gb", .most = 2, .left = 2, .slices = 3, .size = 4, .starts = {0, 4}},
           {.id = 14, .name = "2g.35gb", .most = 3, .left = 3, .slices = 2, .size = 2, .starts = {0, 2, 4}},
           {.id = 15,
            .name = "1g.35gb",
            .most = 4,
            .left = 4,
            .slices = 1,
            .size = 2,
            .starts = {0, 2, 4, 6}},
           {.id = 19, .name = "1g.18gb", .most = 7, .left = 7, .slices = 1, .size = 1, .starts = kEach},
           {.id = 20, .name = "1g.18gb+me", .most = 1, .left = 1, .slices = 1, .size = 1, .starts = kEach}},
      .instances = {},
      .types = {}};
}

mdev::VgpuGpu board(std::uint16_t device) {
  mdev::VgpuGpu out;
  out.function.vendor = 0x10de;
  out.function.device = device;
  return out;
}

class InstancePlanTest : public testing::Test {
 protected:
  void want(const std::string& type, std::uint32_t count) {
    const VgpuCount& entry =
        entries_.emplace_back(VgpuCount{.type = test::must(VgpuTypeName::parse(type)),
                                        .count = count,
                                        .place = "p.yaml:" + std::to_string(wants_.size() + 6)});
    wants_.push_back({.entry = &entry});
  }
  /// A slice there is, and how many more of each kind fit beside it.
  void has(std::uint32_t id, std::uint32_t profile) {
    gpu_.instances.push_back({.id = id, .profile = profile});
  }
  void left(std::uint32_t profile, std::uint32_t count) {
    std::ranges::find(gpu_.profiles, profile, &mdev::GpuInstanceProfile::id)->left = count;
  }
  Preparation plan() const { return plan_instances(board(device_), wants_, gpu_, busy_); }
  std::vector<std::string> steps() const {
    const Preparation made = plan();
    EXPECT_FALSE(made.refusal) << message_of(made.refusal);
    std::vector<std::string> out;
    out.reserve(made.steps.size());
    for (const VgpuStep& step : made.steps) {
      const std::string text = step.text();
      EXPECT_EQ(step.parent, vfio::PciAddress());
      out.push_back(
          text.substr(0, text.rfind(step.kind == VgpuStep::Kind::make_instance ? " on " : " from ")));
    }
    return out;
  }

  std::uint16_t device_ = 0x2335;
  mdev::ManagedGpu gpu_ = h200();
  std::deque<VgpuCount> entries_;
  std::deque<mdev::VgpuDevice> devices_;
  std::vector<Want> wants_;
  std::set<std::uint32_t> busy_;
};

TEST_F(InstancePlanTest, OneInstanceForEachVgpuTheLargestFirst) {
  want("H200X-1-18C", 2);
  want("H200X-2-35C", 1);
  EXPECT_THAT(steps(), ElementsAre("make a GPU instance 2g.35gb", "make a GPU instance 1g.18gb",
                                   "make a GPU instance 1g.18gb"));
  EXPECT_EQ(plan().steps[1].why, "p.yaml:6 asks for H200X-1-18C");
  EXPECT_EQ(plan().steps[0].number, 14U);
}

TEST_F(InstancePlanTest, WhatIsThereIsEnough) {
  want("H200X-2-35C", 2);
  has(3, 14);
  has(4, 14);
  has(5, 19);  // nobody's, and in nobody's way
  EXPECT_THAT(steps(), IsEmpty());
}

TEST_F(InstancePlanTest, OnlyWhatIsMissingIsMade) {
  want("H200X-2-35C", 3);
  has(3, 14);
  left(14, 2);
  EXPECT_THAT(steps(), ElementsAre("make a GPU instance 2g.35gb", "make a GPU instance 2g.35gb"));
}

// One slice of another kind leaves no room; what carries a vGPU is never one that goes.
TEST_F(InstancePlanTest, WhatIsInTheWayGoes) {
  want("H200X-3-71C", 2);
  has(2, 9);
  has(7, 19);
  has(8, 20);
  left(9, 0);
  EXPECT_THAT(steps(), ElementsAre("remove GPU instance 8 (1g.18gb+me)", "remove GPU instance 7 (1g.18gb)",
                                   "make a GPU instance 3g.71gb"));
  busy_ = {8};
  EXPECT_THAT(steps(), ElementsAre("remove GPU instance 7 (1g.18gb)", "make a GPU instance 3g.71gb"));
}

TEST_F(InstancePlanTest, OfTooManyOfAKindTheIdleOnesGo) {
  want("H200X-1-18C", 1);
  want("H200X-4-71C", 1);
  has(1, 19);
  has(2, 19);
  has(3, 19);
  busy_ = {3};
  left(5, 0);
  EXPECT_THAT(steps(), ElementsAre("remove GPU instance 2 (1g.18gb)", "remove GPU instance 1 (1g.18gb)",
                                   "make a GPU instance 4g.71gb"));
}

// The driver reports how many of one kind are left, and not whether two kinds fit together.
TEST_F(InstancePlanTest, ForSeveralKindsTheIdleOnesGo) {
  want("H200X-1-18C", 1);
  want("H200X-4-71C", 1);
  has(1, 15);
  EXPECT_THAT(steps(), ElementsAre("remove GPU instance 1 (1g.35gb)", "make a GPU instance 4g.71gb",
                                   "make a GPU instance 1g.18gb"));
}

TEST_F(InstancePlanTest, TheDriversWordGoesBeforeTheTables) {
  want("H200X-1-18C", 4);
  gpu_.types = {{.id = 1414,
                 .name = "NVIDIA H200X-1-18C",
                 .framebuffer = 18ULL << 30U,
                 .instance_profile = 14,
                 .most_per_instance = 2}};
  EXPECT_THAT(steps(), ElementsAre("make a GPU instance 2g.35gb", "make a GPU instance 2g.35gb"));
}

// RTX PRO 6000: several vGPUs of one size on an instance, of whatever series, and only of one size.
TEST_F(InstancePlanTest, VgpusOfOneSizeShareAnInstance) {
  device_ = 0x2bb5;
  gpu_.profiles = {{.id = 1, .name = "4g.96gb+gfx", .most = 1, .left = 1},
                   {.id = 2, .name = "2g.48gb+gfx", .most = 2, .left = 2},
                   {.id = 3, .name = "1g.24gb+gfx", .most = 4, .left = 4}};
  want("DC-2-12Q", 3);
  want("DC-2-12A", 2);
  EXPECT_THAT(steps(), ElementsAre("make a GPU instance 2g.48gb+gfx", "make a GPU instance 2g.48gb+gfx"));
  wants_.clear();
  want("DC-2-12Q", 3);
  want("DC-2-12A", 1);
  EXPECT_THAT(steps(), ElementsAre("make a GPU instance 2g.48gb+gfx"));
  wants_.clear();
  want("DC-2-24Q", 1);
  want("DC-2-12Q", 1);
  EXPECT_THAT(steps(), ElementsAre("make a GPU instance 2g.48gb+gfx", "make a GPU instance 2g.48gb+gfx"));
}

/// RTX PRO 6000 with two instances 2g.48gb+gfx, 1 and 2: each carries four DC-2-12, two DC-2-24 or one
/// DC-2-48.
class BesideWhatStays : public InstancePlanTest {
 protected:
  BesideWhatStays() {
    device_ = 0x2bb5;
    gpu_.profiles = {{.id = 1, .name = "4g.96gb+gfx", .most = 1, .left = 0},
                     {.id = 2, .name = "2g.48gb+gfx", .most = 2, .left = 0},
                     {.id = 3, .name = "1g.24gb+gfx", .most = 4, .left = 0}};
    has(1, 2);
    has(2, 2);
  }
  /// One more of the last want's stays, on an instance.
  void stays(const char* id, std::uint32_t instance) {
    mdev::VgpuDevice& device = devices_.emplace_back();
    device.id.text = id;
    device.gpu_instance = instance;
    wants_.back().kept.push_back(&device);
    busy_.insert(instance);
  }
};

// Two instances would do if what is on one could move to the other.
TEST_F(BesideWhatStays, AnotherSizeNeedsAnInstanceOfItsOwn) {
  want("DC-2-12Q", 2);
  stays("0000:17:00.4", 1);
  stays("0000:17:01.0", 2);
  want("DC-2-24Q", 2);
  const Preparation refused = plan();
  EXPECT_THAT(refused.steps, IsEmpty());
  EXPECT_EQ(code_of(refused.refusal), Errc::invalid_config);
  EXPECT_EQ(message_of(refused.refusal),
            "p.yaml:6: GPU 0 (0000:00:00.0): 2 x DC-2-12Q, 2 x DC-2-24Q need 3 GPU instances 2g.48gb+gfx, "
            "and 2 fit; GPU "
            "instance 1 keeps vGPU 0000:17:00.4, GPU instance 2 keeps vGPU 0000:17:01.0");
  EXPECT_THAT(hint_of(refused.refusal), testing::HasSubstr("ferry vgpu delete"));
}

TEST_F(BesideWhatStays, AnotherSizeHasTheInstanceThatIsFree) {
  want("DC-2-12Q", 2);
  stays("0000:17:00.4", 2);
  stays("0000:17:00.5", 2);
  want("DC-2-24Q", 2);
  EXPECT_THAT(steps(), IsEmpty());
  entries_.back().count = 3;
  EXPECT_THAT(message_of(plan().refusal), testing::HasSubstr("GPU instance 2 keeps vGPUs 0000:17:00.4 and "
                                                             "0000:17:00.5"));
}

// Whatever the series, and whether or not its own entry comes before.
TEST_F(BesideWhatStays, TheSameSizeHasWhatIsFreeThere) {
  want("DC-2-12A", 6);
  want("DC-2-12Q", 2);
  stays("0000:17:00.4", 1);
  stays("0000:17:01.0", 2);
  EXPECT_THAT(steps(), IsEmpty());
  entries_.front().count = 7;
  EXPECT_THAT(message_of(plan().refusal), testing::HasSubstr("need 3 GPU instances 2g.48gb+gfx, and 2 fit"));
}

TEST_F(BesideWhatStays, WhatIsMissingIsMade) {
  gpu_.instances.pop_back();
  left(2, 1);
  want("DC-2-12Q", 2);
  stays("0000:17:00.4", 1);
  want("DC-2-24Q", 1);
  EXPECT_THAT(steps(), ElementsAre("make a GPU instance 2g.48gb+gfx"));
  busy_ = {};
  devices_.front().gpu_instance = 9;
  EXPECT_THAT(steps(), ElementsAre("make a GPU instance 2g.48gb+gfx")) << "on one that nobody has seen";
}

TEST_F(InstancePlanTest, TooManyAreRefusedBeforeAnythingIsMade) {
  want("H200X-1-18C", 1);
  want("H200X-3-71C", 3);
  const Preparation refused = plan();
  EXPECT_EQ(code_of(refused.refusal), Errc::invalid_config);
  EXPECT_EQ(message_of(refused.refusal),
            "p.yaml:7: GPU 0 (0000:00:00.0): 3 x H200X-3-71C need 3 GPU instances 3g.71gb, and 2 fit");
}

class KindsTogether : public InstancePlanTest {
 protected:
  bool fit() const {
    const Preparation made = plan();
    if (made.refusal) {
      EXPECT_EQ(code_of(made.refusal), Errc::invalid_config);
      EXPECT_THAT(made.steps, IsEmpty());
    }
    return !made.refusal;
  }
  void want_only(std::initializer_list<std::pair<const char*, std::uint32_t>> wants) {
    wants_.clear();
    for (const auto& [type, count] : wants) want(type, count);
  }
};

TEST_F(KindsTogether, FitByTheirMemoryAndTheirSlices) {
  want_only({{"H200X-4-71C", 1}, {"H200X-3-71C", 1}});
  EXPECT_TRUE(fit());
  want_only({{"H200X-3-71C", 1}, {"H200X-2-35C", 2}});
  EXPECT_TRUE(fit());
  want_only({{"H200X-2-35C", 3}, {"H200X-1-18C", 1}});
  EXPECT_TRUE(fit());
  // Seven of seven slices, but nine of eight of the memory.
  want_only({{"H200X-3-71C", 2}, {"H200X-1-18C", 1}});
  EXPECT_FALSE(fit());
  EXPECT_EQ(message_of(plan().refusal),
            "p.yaml:6: GPU 0 (0000:00:00.0): the GPU instances that its vGPUs need do not fit together: 2 x "
            "3g.71gb, "
            "1 x 1g.18gb");
  // Eight of eight of the memory, but eight of seven slices.
  want_only({{"H200X-4-71C", 1}, {"H200X-2-35C", 2}});
  EXPECT_FALSE(fit());
  want_only({{"H200X-7-141C", 1}, {"H200X-1-18C", 1}});
  EXPECT_FALSE(fit());
}

TEST_F(KindsTogether, FitBesideWhatStaysWhereItIs) {
  want_only({{"H200X-3-71C", 1}, {"H200X-1-18C", 1}});
  gpu_.instances = {{.id = 3, .profile = 19, .start = 2}};
  left(9, 1);
  busy_ = {3};
  EXPECT_TRUE(fit());
  want_only({{"H200X-4-71C", 1}, {"H200X-1-18C", 1}});  // which begins at 0 only
  left(5, 0);
  EXPECT_FALSE(fit());
  busy_ = {};
  EXPECT_TRUE(fit()) << "what carries nothing is no obstacle";
  EXPECT_THAT(steps(), ElementsAre("remove GPU instance 3 (1g.18gb)", "make a GPU instance 4g.71gb",
                                   "make a GPU instance 1g.18gb"));
}

// Only those that are where it has to be: 3g begins at 0 or 4.
TEST_F(KindsTogether, AsFewAsPossibleGiveWay) {
  want_only({{"H200X-3-71C", 1}, {"H200X-1-18C", 3}});
  gpu_.instances = {{.id = 3, .profile = 19, .start = 2},
                    {.id = 4, .profile = 19, .start = 3},
                    {.id = 5, .profile = 19, .start = 5}};
  left(9, 0);
  EXPECT_THAT(steps(), ElementsAre("remove GPU instance 5 (1g.18gb)", "make a GPU instance 3g.71gb",
                                   "make a GPU instance 1g.18gb"));
  busy_ = {5};
  EXPECT_THAT(steps(), ElementsAre("remove GPU instance 3 (1g.18gb)", "remove GPU instance 4 (1g.18gb)",
                                   "make a GPU instance 3g.71gb", "make a GPU instance 1g.18gb",
                                   "make a GPU instance 1g.18gb"));
}

TEST_F(KindsTogether, AreLeftToADriverThatDoesNotTellTheirPlaces) {
  for (mdev::GpuInstanceProfile& profile : gpu_.profiles) {
    profile.starts.clear();
    profile.slices = 0;
  }
  want_only({{"H200X-3-71C", 2}, {"H200X-1-18C", 1}});
  EXPECT_TRUE(fit());
}

TEST_F(InstancePlanTest, WhatNobodyKnowsIsRefused) {
  want("L40S-1-12C", 1);
  EXPECT_EQ(code_of(plan().refusal), Errc::unsupported);
  EXPECT_EQ(message_of(plan().refusal),
            "p.yaml:6: GPU 0 (0000:00:00.0): no GPU instance of this GPU is known to carry L40S-1-12C");
  EXPECT_EQ(hint_of(plan().refusal),
            "its GPU instances: 7g.141gb, 4g.71gb, 3g.71gb, 2g.35gb, 1g.35gb, 1g.18gb, 1g.18gb+me");
  gpu_.profiles.clear();
  EXPECT_EQ(hint_of(plan().refusal), "this GPU has no GPU instances (MIG)");
}

}  // namespace
}  // namespace ferry::vgpu
