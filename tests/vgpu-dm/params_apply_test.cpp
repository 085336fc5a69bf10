// SPDX-License-Identifier: Apache-2.0
// Parameters of a vGPU's plug-in: set after it is made, changed while nobody uses it, put back by an undo.
#include <cerrno>

#include <gmock/gmock.h>

#include "tests/vgpu-dm/kind_node.h"
#include "vgpu-dm/plan/comparison.h"

namespace ferry::vgpu {
namespace {

using test::KindNode;
using test::message_of;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using Kind = GpuOutcome::Kind;

/// `vgpus` on GPU 0, the first type with parameters.
Profile tuned(const std::string& vgpus, const std::string& params) {
  Profile profile = test::on("[0]", vgpus);
  profile.items.front().vgpus.front().params = VgpuParams::parse(params).value();
  return profile;
}

class ParamsApply : public testing::TestWithParam<const mdev::Framework*> {
 protected:
  /// What the driver shows of each vGPU of the GPU.
  std::vector<std::string> params() {
    std::vector<std::string> out;
    const VgpuSnapshot snapshot = node.snapshot();
    for (const mdev::VgpuDevice& device : snapshot.inventory.gpus.front().devices) {
      out.push_back(device.params.value_or("(none)"));
    }
    return out;
  }
  GpuOutcome apply(const Profile& profile) { return node.apply(profile).gpus.front(); }
  std::string difference(const Profile& profile) {
    return judge(profile, node.snapshot().inventory).front().difference;
  }
  mdev::VgpuDevice first_vgpu() { return node.snapshot().inventory.gpus.front().devices.front(); }
  KindNode node{GetParam()};
};

TEST_P(ParamsApply, SetsThemOnceTheVgpusAreMade) {
  const Profile profile = tuned("{T4-4Q: 2}", "frame_rate_limiter=0,disable_vnc=1");
  const GpuOutcome made = apply(profile);
  EXPECT_EQ(made.kind, Kind::changed) << message_of(made.error);
  EXPECT_THAT(params(),
              ElementsAre("frame_rate_limiter=0,disable_vnc=1", "frame_rate_limiter=0,disable_vnc=1"));
  EXPECT_THAT(node.writes(), SizeIs(4));
  EXPECT_EQ(difference(profile), "");
  node.kernel.forget_changes();
  EXPECT_EQ(apply(profile).kind, Kind::already_so);
  EXPECT_THAT(node.writes(), IsEmpty());
}

TEST_P(ParamsApply, SaysThemInADryRun) {
  const VgpuPlan plan = plan_profile(tuned("{T4-4Q: 1}", "a=1"), node.snapshot());
  ASSERT_THAT(plan.gpus.front().steps, SizeIs(2));
  EXPECT_THAT(plan.gpus.front().steps[1].text(), HasSubstr("set the parameters of T4-4Q "));
  EXPECT_THAT(plan.gpus.front().steps[1].text(), HasSubstr(" to 'a=1'"));
}

TEST_P(ParamsApply, KeepsTheVgpuWhoseParametersChange) {
  node.make(tuned("{T4-4Q: 1}", "a=1"));
  const mdev::VgpuDevice before = first_vgpu();
  const Profile other = tuned("{T4-4Q: 1}", "b=2,a=1");
  EXPECT_EQ(difference(other), "GPU 0 (0000:05:00.0): vGPU " + before.id.text +
                                   " (T4-4Q): expected the parameters 'b=2,a=1', found 'a=1'");
  EXPECT_EQ(apply(other).kind, Kind::changed);
  EXPECT_THAT(node.writes(), ElementsAre(HasSubstr("b=2,a=1 > ")));
  EXPECT_EQ(first_vgpu().id, before.id);
  // In another order they are the same.
  node.kernel.forget_changes();
  EXPECT_EQ(apply(tuned("{T4-4Q: 1}", "a=1,b=2")).kind, Kind::already_so);
}

TEST_P(ParamsApply, TakesThemAwayWhereNoneAreAskedForAndLeavesThemWhereNothingIs) {
  node.make(tuned("{T4-4Q: 1}", "a=1"));
  EXPECT_EQ(apply(test::on("[0]", "{T4-4Q: 1}")).kind, Kind::already_so);
  EXPECT_THAT(params(), ElementsAre("a=1"));
  EXPECT_EQ(apply(tuned("{T4-4Q: 1}", "")).kind, Kind::changed);
  EXPECT_THAT(params(), ElementsAre(""));
  EXPECT_THAT(node.writes(), ElementsAre(testing::StartsWith("  > ")));  // a single blank
}

TEST_P(ParamsApply, RefusesWhileAVmHasTheVgpu) {
  node.make(tuned("{T4-4Q: 1}", "a=1"));
  node.probe.hold(first_vgpu().id.text);
  const GpuOutcome outcome = apply(tuned("{T4-4Q: 2}", "a=2"));
  EXPECT_EQ(outcome.kind, Kind::refused);
  EXPECT_EQ(test::code_of(outcome.error), Errc::refused);
  EXPECT_THAT(message_of(outcome.error), HasSubstr("cannot be set: VM render"));
  EXPECT_THAT(node.writes(), IsEmpty());
}

TEST_P(ParamsApply, PutsThemBackWhenSomethingFails) {
  node.make(tuned("{T4-4Q: 2}", "a=1"));
  node.kernel.fail_change(2, EINVAL);  // the second of the two
  const GpuOutcome outcome = apply(tuned("{T4-4Q: 2}", "a=2"));
  EXPECT_EQ(outcome.kind, Kind::failed);
  EXPECT_THAT(outcome.undo_errors, IsEmpty());
  EXPECT_THAT(params(), Each("a=1"));
}

INSTANTIATE_TEST_SUITE_P(Frameworks, ParamsApply, testing::ValuesIn(test::frameworks()),
                         [](const auto& row) { return test::name_of(row.param); });

TEST(ParamsApplyOnMdev, ReadsThemBack) {
  KindNode node(&mdev::mediated_on_gpu());
  node.mdev.swallow_params = true;
  const GpuOutcome outcome = node.apply(tuned("{T4-4Q: 1}", "a=1")).gpus.front();
  EXPECT_EQ(outcome.kind, Kind::failed);
  EXPECT_THAT(message_of(outcome.error),
              HasSubstr("the kernel took the write, but other parameters are read back"));
  EXPECT_THAT(node.devices(), IsEmpty());
}

TEST(ParamsApplyOnMdev, RefusesADriverThatHasNone) {
  KindNode node(&mdev::mediated_on_gpu());
  node.mdev.has_params = false;
  node.make(test::on("[0]", "{T4-4Q: 1}"));
  const GpuOutcome outcome = node.apply(tuned("{T4-4Q: 1}", "a=1")).gpus.front();
  EXPECT_EQ(outcome.kind, Kind::refused);
  EXPECT_EQ(test::code_of(outcome.error), Errc::unsupported);
  EXPECT_THAT(message_of(outcome.error), HasSubstr("its driver has none"));
}

}  // namespace
}  // namespace ferry::vgpu
