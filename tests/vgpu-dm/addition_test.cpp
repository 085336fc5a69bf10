// SPDX-License-Identifier: Apache-2.0
#include "vgpu-dm/plan/addition.h"

#include <algorithm>
#include <string>

#include <gmock/gmock.h>

#include "tests/vgpu-dm/gpu_node.h"

namespace ferry::vgpu {
namespace {

using test::at;
using test::GpuNode;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr const char* kType = "nvidia-232";  // T4-4Q
constexpr const char* kOurs = "4e6f5e95-038f-5a9e-bbcd-05b340b6a27e";
constexpr const char* kAnothers = "5b6c0f0e-3b1d-4f0e-9a57-2f6f5f1f7a10";

class SingleVgpu : public testing::Test, protected GpuNode {
 protected:
  static Addition addition(const std::string& type = kType) {
    return {.gpu = at(kFirst), .parent = at(kFirst), .type_id = type, .id = {kOurs}, .why = "a test asks"};
  }
  GpuOutcome add(const Addition& one) {
    const VgpuOutcome outcome = add_vgpu(host(), one).value();
    return *std::ranges::find(outcome.gpus, one.gpu, &GpuOutcome::gpu);
  }
  GpuPlan plan_of(const Addition& one) {
    const VgpuSnapshot now = view();
    return plan_addition(one, now, *now.inventory.find(one.gpu));
  }
};

TEST_F(SingleVgpu, IsMadeBesideOthersAndRemovedAlone) {
  mdev.add_device(kFirst, kType, kAnothers);
  mdev.add_device(kSecond, kType, "6b6c0f0e-3b1d-4f0e-9a57-2f6f5f1f7a10");
  const std::string before = state();
  EXPECT_EQ(add(addition()).kind, GpuOutcome::Kind::changed);
  EXPECT_THAT(mdev.devices_on(kFirst),
              ElementsAre(std::string("T4-4Q ") + kOurs, std::string("T4-4Q ") + kAnothers));
  kernel.forget_changes();
  EXPECT_EQ(add(addition()).kind, GpuOutcome::Kind::already_so);
  EXPECT_THAT(kernel.changes(), IsEmpty());
  Removal removal{.gpus = {at(kFirst)}, .foreign = true, .only = {kOurs}, .only_type = "nvidia-230"};
  EXPECT_FALSE(remove_vgpus(host(), removal).value().wrote()) << "a vGPU of another type is not meant";
  removal.only_type = kType;
  EXPECT_TRUE(remove_vgpus(host(), removal).value().wrote());
  EXPECT_EQ(state(), before);
}

TEST_F(SingleVgpu, IsRefusedWhereItDoesNotFit) {
  mdev.add_device(kFirst, kType, kAnothers);
  EXPECT_THAT(test::message_of(plan_of(addition("nvidia-233")).refusal),
              HasSubstr("none of type nvidia-233 fits now; it carries 1 x T4-4Q"));
  const VgpuSnapshot now = view();
  const auto parent = free_parent(*now.inventory.find(at(kFirst)), "nvidia-233");
  ASSERT_FALSE(parent);
  EXPECT_EQ(parent.error().code, Errc::refused);
  EXPECT_EQ(free_parent(*now.inventory.find(at(kFirst)), kType).value(), at(kFirst));
  EXPECT_FALSE(free_parent(*now.inventory.find(at(kFirst)), kType, {at(kFirst)}));
}

TEST_F(SingleVgpu, IsRefusedWhereAnotherGpuHasItsUuid) {
  mdev.add_device(kSecond, kType, kOurs);
  EXPECT_THAT(test::message_of(plan_of(addition()).refusal),
              HasSubstr("exists already, as T4-4Q on 0000:06"));
}

TEST_F(SingleVgpu, IsRefusedByAGpuThatMakesNone) {
  Addition other = addition();
  other.gpu = other.parent = at(kOther);
  EXPECT_EQ(test::code_of(plan_of(other).refusal), Errc::unsupported);
  EXPECT_THAT(test::message_of(plan_of(other).refusal), HasSubstr("no vGPU can be made on it"));
}

TEST_F(SingleVgpu, IsRolledBackWhenItFails) {
  mdev.leave_driverless = true;
  const GpuOutcome outcome = add(addition());
  EXPECT_EQ(outcome.kind, GpuOutcome::Kind::failed);
  EXPECT_THAT(outcome.undo_errors, IsEmpty());
  EXPECT_THAT(mdev.devices_on(kFirst), IsEmpty());
}

TEST_F(SingleVgpu, LeavesTheOtherGpusOutOfThePlan) {
  const VgpuPlan plan = plan_addition(addition(), view());
  ASSERT_THAT(plan.gpus, SizeIs(3));
  EXPECT_TRUE(plan.gpus[0].matched);
  EXPECT_EQ(plan.gpus[0].steps.at(0).text(), std::string("create T4-4Q ") + kOurs + " on 0000:05:00.0");
  EXPECT_FALSE(plan.gpus[1].matched);
  EXPECT_THAT(plan.gpus[1].steps, IsEmpty());
}

}  // namespace
}  // namespace ferry::vgpu
