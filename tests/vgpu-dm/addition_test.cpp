// SPDX-License-Identifier: Apache-2.0
#include "vgpu-dm/plan/addition.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

#include <gmock/gmock.h>

#include "tests/support/must.h"
#include "tests/vgpu-dm/gpu_node.h"
#include "tests/vgpu-dm/mig_node.h"

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
    const VgpuSnapshot now = snapshot();
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
  const VgpuSnapshot now = snapshot();
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
  const VgpuSnapshot now = snapshot();
  ASSERT_THAT(now.inventory.gpus, SizeIs(3));
  const GpuPlan plan = plan_addition(addition(), now, now.inventory.gpus[0]);
  EXPECT_TRUE(plan.matched);
  EXPECT_EQ(plan.steps.at(0).text(), std::string("create T4-4Q ") + kOurs + " on 0000:05:00.0");
  const GpuPlan other = plan_addition(addition(), now, now.inventory.gpus[1]);
  EXPECT_FALSE(other.matched);
  EXPECT_THAT(other.steps, IsEmpty());
}

/// An H200 with its virtual functions, and one size of vGPUs so far.
class SingleVgpuOfMixedSizes : public testing::Test, protected test::MigNode {
 protected:
  static constexpr const char* kSmall = "1500";  // H200X-35C: one unit at 0 or 3
  static constexpr const char* kLarge = "1501";  // H200X-70C: two units from 1 or 2 on
  static constexpr const char* kOne = "0000:17:00.4";
  static constexpr const char* kTwo = "0000:17:00.5";
  static constexpr const char* kThree = "0000:17:00.6";

  SingleVgpuOfMixedSizes() {
    kernel.enable_vfs(kGpu, kVfs);
    kernel.forget_changes();
  }
  GpuOutcome add(const char* type, const char* function, std::optional<std::uint32_t> placement,
                 Sizes sizes = Sizes::mixed) {
    const Addition one{.gpu = at(kGpu),
                       .parent = at(function),
                       .type_id = type,
                       .id = {function},
                       .placement = placement,
                       .sizes = sizes,
                       .why = "a test asks"};
    const VgpuOutcome outcome = add_vgpu(host(), one).value();
    return *std::ranges::find(outcome.gpus, one.gpu, &GpuOutcome::gpu);
  }
  /// Ferry's own files may have been written.
  bool is_untouched() const {
    return std::ranges::all_of(kernel.changes(), [](const test::HostChange& change) {
      return change.path.find("run/ferry") != std::string::npos;
    });
  }
  /// The error of an addition that writes nothing.
  std::optional<Error> refusal(const char* type, const char* function, std::uint32_t placement) {
    const std::string before = state();
    kernel.forget_changes();
    const GpuOutcome outcome = add(type, function, placement);
    EXPECT_EQ(outcome.kind, GpuOutcome::Kind::refused);
    EXPECT_TRUE(is_untouched());
    EXPECT_EQ(state(), before);
    return outcome.error;
  }
};

TEST_F(SingleVgpuOfMixedSizes, SwitchesThemOnAndGetsItsPlacement) {
  const GpuOutcome first = add(kSmall, kOne, 3);
  EXPECT_EQ(first.kind, GpuOutcome::Kind::changed) << test::message_of(first.error);
  ASSERT_THAT(first.done, SizeIs(2));
  EXPECT_EQ(first.done[0].text(), "switch mixed sizes on on 0000:17:00.0");
  EXPECT_EQ(first.done[1].text(), "create H200X-35C on 0000:17:00.4 at placement 3");
  EXPECT_EQ(add(kLarge, kTwo, 1).kind, GpuOutcome::Kind::changed);
  EXPECT_EQ(add(kSmall, kThree, 0).kind, GpuOutcome::Kind::changed);
  EXPECT_THAT(vendor.places_of_devices(kGpu), ElementsAre("35C at 0", "35C at 3", "70C at 1"));
  kernel.forget_changes();
  EXPECT_EQ(add(kLarge, kTwo, 1).kind, GpuOutcome::Kind::already_so);
  EXPECT_THAT(kernel.changes(), IsEmpty());
}

TEST_F(SingleVgpuOfMixedSizes, IsRefusedWhereAnotherTakesAPartOfItsPlacement) {
  ASSERT_EQ(add(kSmall, kOne, 3).kind, GpuOutcome::Kind::changed);
  EXPECT_THAT(test::message_of(refusal(kLarge, kTwo, 2)),
              HasSubstr("a part of placement 2 of NVIDIA H200X-70C is taken by vGPU 0000:17:00.4 "
                        "(H200X-35C) at 3"));
  EXPECT_THAT(test::message_of(refusal(kSmall, kTwo, 3)), HasSubstr("placement 3 is taken by vGPU"));
  EXPECT_THAT(test::message_of(refusal(kLarge, kTwo, 0)), HasSubstr("has no placement 0"));
}

TEST_F(SingleVgpuOfMixedSizes, IsRefusedBesideVgpusOfOneSize) {
  vendor.set(kOne, kLarge);
  const auto why = refusal(kLarge, kTwo, 1);
  EXPECT_EQ(test::code_of(why), Errc::refused);
  EXPECT_THAT(test::message_of(why),
              HasSubstr("mixed sizes are off, and can be switched on only while it has "
                        "no vGPUs; it has 1 x H200X-70C"));
}

TEST_F(SingleVgpuOfMixedSizes, IsRefusedWithoutTheLibrary) {
  with_library = false;
  kernel.forget_changes();
  const GpuOutcome outcome = add(kSmall, kOne, 3);
  EXPECT_EQ(outcome.kind, GpuOutcome::Kind::refused);
  EXPECT_EQ(test::code_of(outcome.error), Errc::unsupported);
  EXPECT_THAT(test::message_of(outcome.error), HasSubstr("which NVML alone can switch on"));
  EXPECT_TRUE(is_untouched());
}

TEST_F(SingleVgpuOfMixedSizes, FailsAndIsRolledBackIfTheDriverPutsItElsewhere) {
  const std::string before = state();
  vendor.swallow_moves = true;
  const GpuOutcome outcome = add(kSmall, kOne, 3);
  EXPECT_EQ(outcome.kind, GpuOutcome::Kind::failed);
  EXPECT_THAT(test::message_of(outcome.error), HasSubstr("it is at another placement"));
  EXPECT_THAT(outcome.undo_errors, IsEmpty());
  EXPECT_EQ(state(), before) << "mixed sizes are off again";
}

TEST_F(SingleVgpuOfMixedSizes, AreSwitchedOffForTheFirstOfOneSize) {
  test::must(mig.set_mixed_sizes(at(kGpu), true));
  EXPECT_EQ(add(kSmall, kOne, std::nullopt, Sizes::as_now).kind, GpuOutcome::Kind::changed);
  EXPECT_THAT(state(), testing::StartsWith("mixed 8: H200X-35C"));
  vendor.set(kOne, "0");
  const GpuOutcome outcome = add(kSmall, kOne, std::nullopt, Sizes::equal);
  EXPECT_EQ(outcome.kind, GpuOutcome::Kind::changed) << test::message_of(outcome.error);
  EXPECT_EQ(state(), "equal 8: H200X-35C 0000:17:00.4");
}

}  // namespace
}  // namespace ferry::vgpu
