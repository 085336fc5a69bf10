// SPDX-License-Identifier: Apache-2.0
// MIG-backed vGPUs and vGPUs of different sizes: what NVML does is a stage of its own on each side of the
// virtual functions.
#include <cerrno>

#include <gmock/gmock.h>

#include "tests/vgpu-dm/mig_node.h"

namespace ferry {
namespace {

using Kind = GpuOutcome::Kind;
using test::code_of;
using test::hint_of;
using test::message_of;
using test::MigNode;
using test::must;
using test::on;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* kTwoKinds = "{H200X-1-18C: 2, H200X-2-35C: 1}";

TEST(MigApply, FromABootToMigBackedVgpus) {
  MigNode node;
  const GpuOutcome made = node.apply(on("[0]", kTwoKinds));
  EXPECT_EQ(made.kind, Kind::changed) << message_of(made.error);
  EXPECT_THAT(node.steps,
              ElementsAre("switch MIG mode on on 0000:17:00.0", "enable 8 virtual functions of 0000:17:00.0",
                          "make a GPU instance 2g.35gb on 0000:17:00.0",
                          "make a GPU instance 1g.18gb on 0000:17:00.0",
                          "make a GPU instance 1g.18gb on 0000:17:00.0", "create H200X-1-18C on 0000:17:00.4",
                          "create H200X-1-18C on 0000:17:00.5", "create H200X-2-35C on 0000:17:00.6"));
  EXPECT_EQ(node.state(),
            "MIG 8 1g.18gb 1g.18gb 2g.35gb: H200X-1-18C 0000:17:00.4 H200X-1-18C 0000:17:00.5 H200X-2-35C "
            "0000:17:00.6");
  node.kernel.forget_changes();
  EXPECT_EQ(node.apply(on("[0]", kTwoKinds)).kind, Kind::already_so);
  EXPECT_THAT(node.kernel.changes(), IsEmpty());
}

std::vector<std::string> texts(const std::vector<VgpuStep>& steps) {
  std::vector<std::string> out;
  for (const VgpuStep& step : steps) out.push_back(step.text());
  return out;
}
GpuPlan plan(MigNode& node, const Profile& profile) {
  return plan_profile(profile, must(look(node.host(), {&profile, 1}))).gpus.at(0);
}

TEST(MigPlan, ForeseesTheStagesBehindTheFirst) {
  MigNode node;
  const GpuPlan from_boot = plan(node, on("[0]", kTwoKinds));
  EXPECT_THAT(texts(from_boot.steps), ElementsAre("switch MIG mode on on 0000:17:00.0"));
  EXPECT_THAT(texts(from_boot.later), ElementsAre("enable 8 virtual functions of 0000:17:00.0",
                                                  "make a GPU instance 2g.35gb on 0000:17:00.0",
                                                  "make a GPU instance 1g.18gb on 0000:17:00.0",
                                                  "make a GPU instance 1g.18gb on 0000:17:00.0"));
  EXPECT_EQ(text(from_boot.then), "2 x H200X-1-18C, 1 x H200X-2-35C");
  must(node.mig.set_mig(test::at(MigNode::kGpu), true));
  const GpuPlan in_mode = plan(node, on("[0]", "{H200X-1-18C: 1}"));
  EXPECT_THAT(texts(in_mode.steps), ElementsAre("enable 8 virtual functions of 0000:17:00.0"));
  EXPECT_THAT(texts(in_mode.later), ElementsAre("make a GPU instance 1g.18gb on 0000:17:00.0"));
}

// Functions go with the mode, and the GPU instances and mixed sizes with them.
TEST(MigPlan, CountsOnNothingThatGoesWithTheFunctions) {
  MigNode node;
  node.make("{H200X-35C: 1}");
  const GpuPlan to_mig = plan(node, on("[0]", "{H200X-1-18C: 1}"));
  EXPECT_THAT(texts(to_mig.later), ElementsAre("enable 8 virtual functions of 0000:17:00.0",
                                               "make a GPU instance 1g.18gb on 0000:17:00.0"));
  ASSERT_EQ(node.apply(on("[0]", "{H200X-1-18C: 1}")).kind, Kind::changed);
  Profile mixed = on("[0]", "{H200X-70C: 1, H200X-35C: 1}");
  mixed.items[0].mixed_sizes = true;
  const GpuPlan to_mixed = plan(node, mixed);
  EXPECT_FALSE(to_mixed.refusal) << message_of(to_mixed.refusal);
  EXPECT_THAT(texts(to_mixed.steps), ElementsAre("remove H200X-1-18C from 0000:17:00.4",
                                                 "disable 8 virtual functions of 0000:17:00.0",
                                                 "switch MIG mode off on 0000:17:00.0"));
  EXPECT_THAT(texts(to_mixed.later), ElementsAre("enable 8 virtual functions of 0000:17:00.0",
                                                 "switch mixed sizes on on 0000:17:00.0"));
  // Beside what can be made at once nothing is foreseen.
  EXPECT_THAT(texts(plan(node, on("[0]", "{H200X-1-18C: 1, H200X-2-35C: 1}")).later), IsEmpty());
}

TEST(MigApply, WhatFitsStaysOnItsInstance) {
  MigNode node;
  node.make("{H200X-1-18C: 1}");
  node.vendor.hold("0000:17:00.4");
  node.probe.hold("0000:17:00.4");
  EXPECT_EQ(node.apply(on("[0]", kTwoKinds)).kind, Kind::changed);
  EXPECT_THAT(node.steps,
              ElementsAre("make a GPU instance 2g.35gb on 0000:17:00.0",
                          "make a GPU instance 1g.18gb on 0000:17:00.0", "create H200X-1-18C on 0000:17:00.5",
                          "create H200X-2-35C on 0000:17:00.6"));
}

// The instance that it is on might be the one that goes.
TEST(MigPlan, TakesNoInstanceAwayWhileOneThatStaysDoesNotTellItsOwn) {
  MigNode node;
  node.make("{H200X-1-18C: 7}");
  const Profile profile = on("[0]", "{H200X-1-18C: 1, H200X-3-71C: 1}");
  VgpuView view = must(look(node.host(), {&profile, 1}));
  std::uint32_t instance = 0;
  for (VgpuDevice& device : view.inventory.gpus.at(0).devices) device.gpu_instance = ++instance;
  EXPECT_FALSE(plan_profile(profile, view).gpus.at(0).refusal);
  view.inventory.gpus.at(0).devices.at(0).gpu_instance.reset();
  const GpuPlan refused = plan_profile(profile, view).gpus.at(0);
  EXPECT_EQ(code_of(refused.refusal), Errc::refused);
  EXPECT_THAT(message_of(refused.refusal), HasSubstr("does not tell which it is on"));
  EXPECT_THAT(refused.steps, IsEmpty());
}

TEST(MigApply, InstancesInTheWayGoBehindTheirVgpus) {
  MigNode node;
  node.make("{H200X-1-18C: 7}");
  EXPECT_EQ(node.apply(on("[0]", "{H200X-3-71C: 2}")).kind, Kind::changed);
  EXPECT_THAT(node.state(), "MIG 8 3g.71gb 3g.71gb: H200X-3-71C 0000:17:00.4 H200X-3-71C 0000:17:00.5");
}

TEST(MigApply, AndBackToTimeSlicedOnes) {
  MigNode node;
  node.make(kTwoKinds);
  EXPECT_EQ(node.apply(on("[0]", "{H200X-35C: 2}")).kind, Kind::changed);
  EXPECT_THAT(
      node.steps,
      ElementsAre("remove H200X-1-18C from 0000:17:00.4", "remove H200X-1-18C from 0000:17:00.5",
                  "remove H200X-2-35C from 0000:17:00.6", "disable 8 virtual functions of 0000:17:00.0",
                  "switch MIG mode off on 0000:17:00.0", "enable 8 virtual functions of 0000:17:00.0",
                  "create H200X-35C on 0000:17:00.4", "create H200X-35C on 0000:17:00.5"));
}

TEST(MigApply, AVmKeepsTheModeItNeeds) {
  MigNode node;
  node.make("{H200X-1-18C: 1}");
  node.probe.hold("0000:17:00.4");
  const std::string before = node.state();
  const GpuOutcome refused = node.apply(on("[0]", "{H200X-35C: 1}"));
  EXPECT_EQ(refused.kind, Kind::refused);
  EXPECT_THAT(message_of(refused.error), HasSubstr("VM render"));
  EXPECT_THAT(node.kernel.changes(), IsEmpty());
  EXPECT_EQ(node.state(), before);
}

TEST(MigApply, IsRefusedWhereNobodyCanSeeToIt) {
  MigNode node;
  node.with_library = false;
  GpuOutcome refused = node.apply(on("[0]", kTwoKinds));
  EXPECT_EQ(refused.kind, Kind::refused);
  EXPECT_EQ(code_of(refused.error), Errc::unsupported);
  node.with_library = true;
  node.kernel.on_call({});
  refused = node.apply(on("[0]", kTwoKinds));
  EXPECT_EQ(code_of(refused.error), Errc::unsupported);
  EXPECT_THAT(message_of(refused.error),
              HasSubstr("p.yaml:4: GPU 0 (0000:17:00.0): its vGPUs need GPU instances "
                        "(MIG), which NVML alone can see to: read what NVML says of "
                        "0000:17:00.0"));
  EXPECT_THAT(node.kernel.changes(), IsEmpty());
}

TEST(MigApply, MoreThanFitIsRefusedBeforeAnythingIsDone) {
  MigNode node;
  node.make("{H200X-1-18C: 1}");
  const GpuOutcome refused = node.apply(on("[0]", "{H200X-3-71C: 3}"));
  EXPECT_EQ(refused.kind, Kind::refused);
  EXPECT_THAT(message_of(refused.error), HasSubstr("3 x H200X-3-71C"));
  EXPECT_THAT(node.kernel.changes(), IsEmpty());
}

TEST(MigApply, SaysThatAResetIsDue) {
  MigNode node;
  node.mig.needs_reset = true;
  const std::string before = node.state();
  const GpuOutcome failed = node.apply(on("[0]", kTwoKinds));
  EXPECT_EQ(failed.kind, Kind::failed);
  EXPECT_THAT(message_of(failed.error),
              HasSubstr("MIG mode is switched on, but not before the GPU is reset"));
  EXPECT_EQ(node.apply(on("[0]", kTwoKinds)).kind, Kind::refused);
  EXPECT_EQ(hint_of(failed.error), "reboot the node, then apply again");
}

TEST(MigApply, DoesNotBelieveTheLibrary) {
  MigNode node;
  node.make("{H200X-1-18C: 1}");
  const std::string before = node.state();
  node.mig.swallow = true;
  const GpuOutcome failed = node.apply(on("[0]", kTwoKinds));
  EXPECT_EQ(failed.kind, Kind::failed);
  EXPECT_THAT(message_of(failed.error), HasSubstr("the driver took it, but it is not so"));
  EXPECT_THAT(failed.undo_errors, IsEmpty());
  EXPECT_EQ(node.state(), before);
}

TEST(MixedSizes, AreSwitchedOnBeforeTheFirstVgpu) {
  MigNode node;
  Profile mixed = on("[0]", "{H200X-70C: 1, H200X-35C: 2}");
  EXPECT_EQ(node.apply(mixed).kind, Kind::refused) << "one size is the rule";
  EXPECT_THAT(node.kernel.changes(), IsEmpty());
  mixed.items[0].mixed_sizes = true;
  const GpuOutcome made = node.apply(mixed);
  EXPECT_EQ(made.kind, Kind::changed) << message_of(made.error);
  EXPECT_EQ(node.state(), "mixed 8: H200X-35C 0000:17:00.4 H200X-35C 0000:17:00.5 H200X-70C 0000:17:00.6");
  node.kernel.forget_changes();
  EXPECT_EQ(node.apply(mixed).kind, Kind::already_so);
  EXPECT_THAT(node.kernel.changes(), IsEmpty());
}

TEST(MixedSizes, AreNoMoreThanThereAreFunctions) {
  MigNode node;
  node.make("{}");
  node.kernel.enable_vfs(MigNode::kGpu, MigNode::kVfs);
  must(node.mig.set_mixed_sizes(test::at(MigNode::kGpu), true));
  Profile mixed = on("[0]", "{H200X-70C: 1, H200X-35C: 8}");
  mixed.items[0].mixed_sizes = true;
  const GpuOutcome refused = node.apply(mixed);
  EXPECT_EQ(refused.kind, Kind::refused);
  EXPECT_THAT(message_of(refused.error), HasSubstr("no room for 8 x H200X-35C: 8 fit"));
  EXPECT_THAT(node.kernel.writes(), IsEmpty());
}

// Without a vGPU host driver nothing is begun.
TEST(MigApply, IsRefusedUnderAnOrdinaryDriver) {
  MigNode node;
  node.mig.vgpu_host = false;
  const GpuOutcome refused = node.apply(on("[0]", kTwoKinds));
  EXPECT_EQ(refused.kind, Kind::refused);
  EXPECT_THAT(message_of(refused.error), HasSubstr("its driver is not one that makes vGPUs"));
  EXPECT_THAT(node.kernel.changes(), IsEmpty());
}

// Asked before the first vGPU goes, so that the mode it had is known when something fails.
TEST(MigApply, TheWayBackFromTimeSlicedOnesKnowsTheMode) {
  MigNode model;
  model.make(kTwoKinds);
  const std::string before = model.state();
  ASSERT_EQ(model.apply(on("[0]", "{H200X-35C: 2}")).kind, Kind::changed);
  const std::size_t changes = model.kernel.changes().size();
  for (std::size_t n = 1; n <= changes; ++n) {
    SCOPED_TRACE(n);
    MigNode node;
    node.make(kTwoKinds);
    node.kernel.fail_change(n, EIO);
    const GpuOutcome failed = node.apply(on("[0]", "{H200X-35C: 2}"));
    if (failed.kind == Kind::changed) continue;  // the list of names
    EXPECT_EQ(node.state(), before) << (failed.undo_errors.empty() ? "" : failed.undo_errors[0].message);
  }
}

TEST(MixedSizes, AreNotSwitchedOnUnderVgpusThatStay) {
  MigNode node;
  node.make("{H200X-35C: 1}");
  Profile mixed = on("[0]", "{H200X-70C: 1, H200X-35C: 1}");
  mixed.items[0].mixed_sizes = true;
  const GpuOutcome refused = node.apply(mixed);
  EXPECT_EQ(refused.kind, Kind::refused);
  EXPECT_THAT(message_of(refused.error), HasSubstr("only while the GPU carries nothing"));
  EXPECT_THAT(node.kernel.changes(), IsEmpty());
}

}  // namespace
}  // namespace ferry
