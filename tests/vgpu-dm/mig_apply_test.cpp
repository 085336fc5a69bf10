// SPDX-License-Identifier: Apache-2.0
// MIG-backed vGPUs and vGPUs of different sizes: what NVML does is a stage of its own on each side of the
// virtual functions.
#include <cerrno>

#include <gmock/gmock.h>

#include "tests/vgpu-dm/mig_node.h"

namespace ferry::vgpu {
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

// Enabling functions deletes GPU instances, also idle ones.
TEST(MigApply, EnablesNoFunctionsForClaimsBesideGpuInstances) {
  MigNode node;
  const auto enable = [&] {
    const auto outcome = must(
        enable_functions_again(node.host(), {.gpu = test::at(MigNode::kGpu), .number = 4, .why = "test"}));
    return outcome.gpus.at(0);
  };
  must(node.mig.set_mig(test::at(MigNode::kGpu), true));
  must(node.mig.make_instance(test::at(MigNode::kGpu),
                              must(node.mig.read(test::at(MigNode::kGpu))).profiles.front().id));
  const std::string before = node.state();
  node.kernel.forget_changes();
  const GpuOutcome refused = enable();
  EXPECT_EQ(refused.kind, Kind::refused);
  EXPECT_THAT(message_of(refused.error), HasSubstr("it has GPU instances (MIG)"));
  EXPECT_EQ(node.state(), before);
  EXPECT_THAT(node.kernel.changes(), IsEmpty());

  must(node.mig.remove_instance(test::at(MigNode::kGpu),
                                must(node.mig.read(test::at(MigNode::kGpu))).instances.front().id));
  EXPECT_EQ(enable().kind, Kind::changed);
  EXPECT_EQ(node.kernel.vfs_of(MigNode::kGpu).size(), 4U);
}

std::vector<std::string> texts(const std::vector<VgpuStep>& steps) {
  std::vector<std::string> out;
  out.reserve(steps.size());
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
                          "make a GPU instance 1g.18gb on 0000:17:00.0", "create H200X-2-35C on 0000:17:00.6",
                          "create H200X-1-18C on 0000:17:00.5"));
}

// The instance that it is on might be the one that goes.
TEST(MigPlan, TakesNoInstanceAwayWhileOneThatStaysDoesNotReportItsOwn) {
  MigNode node;
  node.make("{H200X-1-18C: 7}");
  const Profile profile = on("[0]", "{H200X-1-18C: 1, H200X-3-71C: 1}");
  VgpuSnapshot snapshot = must(look(node.host(), {&profile, 1}));
  std::uint32_t instance = 0;
  for (mdev::VgpuDevice& device : snapshot.inventory.gpus.at(0).devices) device.gpu_instance = ++instance;
  EXPECT_FALSE(plan_profile(profile, snapshot).gpus.at(0).refusal);
  snapshot.inventory.gpus.at(0).devices.at(0).gpu_instance.reset();
  const GpuPlan refused = plan_profile(profile, snapshot).gpus.at(0);
  EXPECT_EQ(code_of(refused.refusal), Errc::refused);
  EXPECT_THAT(message_of(refused.refusal), HasSubstr("does not show which it is on"));
  EXPECT_THAT(refused.steps, IsEmpty());
}

/// What the library says of a GPU with two instances, 1 and 2, each for four vGPUs of one size or two of
/// another.
mdev::ManagedGpu with_shared_instances(MigNode& node) {
  mdev::ManagedGpu said = must(node.mig.read(test::at(MigNode::kGpu)));
  constexpr std::uint32_t kProfile = 9;  // 3g.71gb, of which two fit
  said.instances = {{.id = 1, .profile = kProfile, .start = 0}, {.id = 2, .profile = kProfile, .start = 4}};
  said.types = {{.id = 1414,
                 .name = "NVIDIA H200X-1-18C",
                 .framebuffer = 18ULL << 30U,
                 .instance_profile = kProfile,
                 .most_per_instance = 4},
                {.id = 1416,
                 .name = "NVIDIA H200X-2-35C",
                 .framebuffer = 35ULL << 30U,
                 .instance_profile = kProfile,
                 .most_per_instance = 2}};
  return said;
}

// A vGPU that stays does so where it is, and has no other size beside it.
TEST(MigPlan, CountsTheInstancesThatThoseWhichStayAreOn) {
  MigNode node;
  node.make("{H200X-1-18C: 3}");
  node.probe.hold("0000:17:00.4");
  node.probe.hold("0000:17:00.5");
  const Profile both = on("[0]", "{H200X-1-18C: 2, H200X-2-35C: 1}");
  VgpuSnapshot snapshot = must(look(node.host(), {&both, 1}));
  snapshot.managed.insert_or_assign(test::at(MigNode::kGpu), with_shared_instances(node));
  std::vector<mdev::VgpuDevice>& devices = snapshot.inventory.gpus.at(0).devices;
  devices.at(0).gpu_instance = devices.at(1).gpu_instance = 1;
  devices.at(2).gpu_instance = 2;
  EXPECT_EQ(message_of(plan_profile(both, snapshot).gpus.at(0).refusal), "(no error)");
  devices.at(1).gpu_instance = 2;
  const GpuPlan refused = plan_profile(both, snapshot).gpus.at(0);
  EXPECT_THAT(refused.steps, IsEmpty());
  EXPECT_THAT(
      message_of(refused.refusal),
      HasSubstr("need 3 GPU instances 3g.71gb, and 2 fit; GPU instance 1 keeps vGPU 0000:17:00.4, GPU "
                "instance 2 keeps vGPU 0000:17:00.5"));
}

// Of too many those go that leave an instance to others.
TEST(MigPlan, KeepsTogetherWhatSharesAnInstance) {
  MigNode node;
  node.make("{H200X-1-18C: 5}");
  const Profile both = on("[0]", "{H200X-1-18C: 2, H200X-2-35C: 1}");
  const auto kept = [&] {
    VgpuSnapshot snapshot = must(look(node.host(), {&both, 1}));
    snapshot.managed.insert_or_assign(test::at(MigNode::kGpu), with_shared_instances(node));
    std::uint32_t number = 0;
    for (mdev::VgpuDevice& device : snapshot.inventory.gpus.at(0).devices)
      device.gpu_instance = 1 + number++ % 2;
    const GpuPlan made = plan_profile(both, snapshot).gpus.at(0);
    EXPECT_FALSE(made.refusal) << message_of(made.refusal);
    std::vector<std::string> out;
    out.reserve(made.kept.size());
    for (const mdev::VgpuId& id : made.kept) out.push_back(id.text);
    return out;
  };
  EXPECT_THAT(kept(), ElementsAre("0000:17:00.4", "0000:17:00.6"));
  node.probe.hold("0000:17:00.7");
  EXPECT_THAT(kept(), ElementsAre("0000:17:00.7", "0000:17:00.5"));
}

// The driver takes the first instance that has room: the empty one is for those that fit on no other.
TEST(MigPlan, MakesLastWhatMayGoBesideThoseThatStay) {
  MigNode node;
  node.make("{H200X-1-18C: 3, H200X-3-71C: 1}");
  const Profile both = on("[0]", "{H200X-1-18C: 4, H200X-2-35C: 1}");
  VgpuSnapshot snapshot = must(look(node.host(), {&both, 1}));
  snapshot.managed.insert_or_assign(test::at(MigNode::kGpu), with_shared_instances(node));
  mdev::VgpuGpu& gpu = snapshot.inventory.gpus.at(0);
  for (mdev::VgpuDevice& device : gpu.devices)
    device.gpu_instance = device.short_name == "H200X-1-18C" ? 2 : 1;
  const mdev::VgpuType late_type = {.id = "1414",
                                    .name = "NVIDIA H200X-1-18C",
                                    .short_name = "H200X-1-18C",
                                    .available = 1,
                                    .max_instances = 8,
                                    .framebuffer_mib = 18432};
  for (const bool listed : {false, true}) {
    if (listed) gpu.parents.back().types.push_back(late_type);
    const GpuPlan made = plan_profile(both, snapshot).gpus.at(0);
    EXPECT_EQ(message_of(made.refusal), "(no error)");
    EXPECT_THAT(texts(made.steps), ElementsAre("remove H200X-3-71C from 0000:17:00.7"));
    EXPECT_EQ(text(made.then), "1 x H200X-2-35C, 1 x H200X-1-18C");
  }
}

TEST(MigApply, InstancesInTheWayGoBehindTheirVgpus) {
  MigNode node;
  node.make("{H200X-1-18C: 7}");
  EXPECT_EQ(node.apply(on("[0]", "{H200X-3-71C: 2}")).kind, Kind::changed);
  EXPECT_THAT(node.state(), "MIG 8 3g.71gb 3g.71gb: H200X-3-71C 0000:17:00.4 H200X-3-71C 0000:17:00.5");
}

// A 4g begins at 0 alone, and an idle 1g that is needed lies there.
TEST(MigApply, AnInstanceThatIsNeededGivesWayToALargerOne) {
  MigNode node;
  node.make("{H200X-1-18C: 5}");
  ASSERT_EQ(node.apply(on("[0]", "{}")).kind, Kind::changed);
  for (std::uint32_t id = 1; id <= 4; ++id) must(node.mig.remove_instance(test::at(MigNode::kGpu), id));
  const GpuOutcome made = node.apply(on("[0]", "{H200X-4-71C: 1, H200X-1-18C: 1}"));
  EXPECT_EQ(made.kind, Kind::changed) << message_of(made.error);
  EXPECT_THAT(node.state(), testing::StartsWith("MIG 8 1g.18gb 4g.71gb:"));
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

// One that carries nothing may be in use all the same: taken by its address, through a driver of its own.
TEST(MigApply, AFunctionInUseKeepsTheMode) {
  for (const char* vgpus : {"{H200X-35C: 1}", "{}"}) {
    MigNode node;
    node.make("{H200X-35C: 1}");
    node.make(vgpus);
    node.probe.hold("0000:17:00.7");
    const std::string before = node.state();
    const GpuOutcome refused = node.apply(on("[0]", "{H200X-1-18C: 1}"));
    EXPECT_EQ(refused.kind, Kind::refused);
    EXPECT_EQ(message_of(refused.error),
              "GPU 0 (0000:17:00.0): its virtual functions would have to be removed, and 0000:17:00.7 is in "
              "use: VM "
              "render (pid 412) holds /dev/vfio/100");
    EXPECT_THAT(node.kernel.changes(), IsEmpty());
    EXPECT_EQ(node.state(), before);
  }
}

// While the GPU waited for its turn.
TEST(MigApply, AFunctionTakenAtTheLastMomentKeepsTheMode) {
  MigNode node;
  node.make("{H200X-35C: 1}");
  node.make("{}");
  node.probe.looks = 0;
  node.probe.before_scan = [&](int look) {
    if (look == 3) node.probe.hold("0000:17:00.7");  // behind the plan's and the one before the first write
  };
  const std::string before = node.state();
  const GpuOutcome refused = node.apply(on("[0]", "{H200X-1-18C: 1}"));
  EXPECT_EQ(refused.kind, Kind::refused);
  EXPECT_THAT(message_of(refused.error), HasSubstr("0000:17:00.7 is in use"));
  EXPECT_THAT(node.kernel.changes(), IsEmpty());
  EXPECT_EQ(node.state(), before);
}

TEST(MigApply, AFunctionThatCannotBeReadKeepsTheMode) {
  MigNode node;
  node.make("{H200X-35C: 1}");
  node.make("{}");
  node.probe.looks = 0;
  node.probe.before_scan = [&](int look) {
    if (look == 2)  // behind the last scan before the first write
      node.kernel.file("sys/devices/pci0000:00/0000:17:00.7/nvidia/current_vgpu_type", "?\n");
  };
  const GpuOutcome refused = node.apply(on("[0]", "{H200X-1-18C: 1}"));
  EXPECT_EQ(refused.kind, Kind::refused);
  EXPECT_THAT(message_of(refused.error), HasSubstr("it may carry vGPUs that cannot be read"));
  EXPECT_THAT(node.kernel.changes(), IsEmpty());
  EXPECT_EQ(node.kernel.vfs_of(MigNode::kGpu).size(), MigNode::kVfs);
}

TEST(MigApply, TheRollbackLeavesFunctionsThatAreInUse) {
  MigNode node;
  node.make("{H200X-35C: 1}");
  node.make("{}");
  node.kernel.fail_change(4, EIO);  // the GPU instance, behind functions off, the mode, functions on
  const int before_undo = node.probe.looks + 3;
  node.probe.before_scan = [&](int look) {
    if (look > before_undo) node.probe.hold("0000:17:00.7");
  };
  const GpuOutcome failed = node.apply(on("[0]", "{H200X-1-18C: 1}"));
  EXPECT_EQ(failed.kind, Kind::failed);
  EXPECT_EQ(node.state(), "MIG 8:") << "the functions with what is on them";
  ASSERT_THAT(failed.undo_errors, testing::SizeIs(1));
  EXPECT_THAT(failed.undo_errors.front().message, HasSubstr("its MIG mode is another one"));
}

TEST(MigApply, TheRollbackIsNotBelievedFromALibraryThatAnswersNoMore) {
  for (const std::size_t answers_again : {0U, 3U}) {
    MigNode node;
    const std::string before = node.state();
    bool dead = false;
    std::size_t asked = 0;
    node.kernel.on_call([&](const LibraryCall& call) {
      dead = dead || call.request.find("make_instance") != std::string::npos;
      if (dead && answers_again == 0)
        return std::string(R"({"error": {"code": 7, "message": "m", "hint": ""}})");
      if (dead && ++asked <= answers_again) return std::string();
      return mdev::answer_gpu_call(node.mig, call.request);
    });
    const GpuOutcome failed = node.apply(on("[0]", kTwoKinds));
    EXPECT_EQ(failed.kind, Kind::failed);
    if (answers_again > 0) {
      EXPECT_THAT(failed.undo_errors, IsEmpty()) << "asked until it answers";
      EXPECT_EQ(node.state(), before);
      continue;
    }
    ASSERT_THAT(failed.undo_errors, testing::SizeIs(1));
    EXPECT_THAT(
        failed.undo_errors.front().message,
        HasSubstr("Ferry cannot find out whether MIG mode, GPU instances and mixed sizes are as before"));
  }
}

// Somebody else switches them on while this run waits for its turn, and may be about to use them.
TEST(MigApply, TheRollbackLeavesFunctionsThatAnotherProgramSwitchedOn) {
  for (const bool changes_mode : {false, true}) {
    SCOPED_TRACE(changes_mode);
    MigNode node;
    if (!changes_mode) must(node.mig.set_mig(test::at(MigNode::kGpu), true));
    const std::string moment = changes_mode ? "set_mig" : "read";
    node.kernel.on_call([&](const LibraryCall& call) {
      std::string answer = mdev::answer_gpu_call(node.mig, call.request);
      if (call.request.find(moment) != std::string::npos && node.kernel.vfs_of(MigNode::kGpu).empty())
        node.kernel.enable_vfs(MigNode::kGpu, MigNode::kVfs);
      return answer;
    });
    node.kernel.fail_change(changes_mode ? 2 : 1, EIO);  // the GPU instance
    const GpuOutcome failed = node.apply(on("[0]", "{H200X-1-18C: 1}"));
    EXPECT_EQ(failed.kind, Kind::failed);
    EXPECT_EQ(node.state(), "MIG 8:");
    if (!changes_mode) {
      EXPECT_THAT(failed.undo_errors, IsEmpty());
      continue;
    }
    ASSERT_THAT(failed.undo_errors, testing::SizeIs(1));
    EXPECT_THAT(failed.undo_errors.front().message, HasSubstr("its MIG mode is another one"));
  }
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
  ASSERT_THAT(failed.undo_errors, testing::SizeIs(1));
  EXPECT_EQ(failed.undo_errors.front().message,
            "undo: its MIG mode will be another one after its next reset");
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

TEST(MixedSizes, AreRefusedWhereNobodyCanSeeToThem) {
  MigNode node;
  node.with_library = false;
  Profile mixed = on("[0]", "{H200X-70C: 1, H200X-35C: 1}");
  mixed.items[0].mixed_sizes = true;
  const GpuOutcome refused = node.apply(mixed);
  EXPECT_EQ(refused.kind, Kind::refused);
  EXPECT_EQ(code_of(refused.error), Errc::unsupported);
  EXPECT_THAT(message_of(refused.error),
              HasSubstr("it is to have vGPUs of different sizes, which NVML alone"));
  EXPECT_THAT(node.kernel.changes(), IsEmpty());
}

TEST(MixedSizes, StayOnUnderVgpusThatStay) {
  MigNode node;
  node.make("{H200X-70C: 1, H200X-35C: 2}", true);
  GpuOutcome outcome = node.apply(on("[0]", "{H200X-70C: 2}"));
  EXPECT_EQ(outcome.kind, Kind::refused);
  EXPECT_EQ(
      message_of(outcome.error),
      "p.yaml:4: GPU 0 (0000:17:00.0): no room for 2 x H200X-70C while mixed sizes are on, and they can "
      "be switched off only while the GPU carries nothing");
  EXPECT_THAT(hint_of(outcome.error), HasSubstr("ferry vgpu delete"));
  EXPECT_THAT(node.kernel.changes(), IsEmpty());
  ASSERT_EQ(node.apply(on("[0]", "{H200X-35C: 1}")).kind, Kind::changed);
  outcome = node.apply(on("[0]", "{H200X-35C: 2}"));
  EXPECT_EQ(outcome.kind, Kind::changed) << message_of(outcome.error);
  EXPECT_EQ(node.state(), "mixed 8: H200X-35C 0000:17:00.4 H200X-35C 0000:17:00.5");
}

// Half as many fit in that mode.
TEST(MixedSizes, AreSwitchedOffOnceNothingIsThere) {
  MigNode node;
  node.make("{H200X-35C: 1}");
  ASSERT_EQ(node.apply(on("[0]", "{}")).kind, Kind::changed);
  must(node.mig.set_mixed_sizes(test::at(MigNode::kGpu), true));
  const GpuOutcome made = node.apply(on("[0]", "{H200X-35C: 4}"));
  EXPECT_EQ(made.kind, Kind::changed) << message_of(made.error);
  EXPECT_EQ(node.steps.at(0), "switch mixed sizes off on 0000:17:00.0");
  EXPECT_EQ(made.done.at(0).why, "p.yaml:4 asks for one size, of which more fit without");
  EXPECT_THAT(node.state(), testing::StartsWith("equal 8: H200X-35C"));
}

TEST(MixedSizes, AreNoMoreThanThereAreFunctions) {
  MigNode node;
  node.make("{}");
  node.kernel.enable_vfs(MigNode::kGpu, MigNode::kVfs);
  VgpuSnapshot snapshot = must(look(node.host()));
  mdev::ManagedGpu said = must(node.mig.read(test::at(MigNode::kGpu)));
  said.mixed_sizes = mdev::GpuSwitch::on;
  said.types.clear();  // which would refuse them before
  snapshot.managed.insert_or_assign(test::at(MigNode::kGpu), said);
  Profile mixed = on("[0]", "{H200X-70C: 1, H200X-35C: 8}");
  mixed.items[0].mixed_sizes = true;
  const GpuPlan refused = plan_profile(mixed, snapshot).gpus.at(0);
  EXPECT_THAT(message_of(refused.refusal), HasSubstr("no room for 8 x H200X-35C: 8 fit"));
  EXPECT_THAT(refused.steps, IsEmpty());
}

Profile of_mixed_sizes(const char* vgpus) {
  Profile profile = on("[0]", vgpus);
  profile.items[0].mixed_sizes = true;
  return profile;
}

// What can never fit costs nobody the vGPUs that there are.
TEST(MixedSizes, ThatCannotFitAreRefusedBeforeAnythingGoes) {
  const auto refused = [](MigNode& node, const char* vgpus) {
    node.kernel.forget_changes();
    const GpuOutcome outcome = node.apply(of_mixed_sizes(vgpus));
    EXPECT_EQ(outcome.kind, Kind::refused) << vgpus;
    EXPECT_THAT(node.kernel.changes(), IsEmpty()) << vgpus;
    return message_of(outcome.error);
  };
  constexpr const char* kTooMuch =
      "p.yaml:5: GPU 0 (0000:17:00.0): no room for 1 x H200X-35C, 2 x H200X-70C together: at least 179200 "
      "MiB, and it has 144384 MiB for vGPUs";
  MigNode bare;
  EXPECT_EQ(refused(bare, "{H200X-70C: 3}"),
            "p.yaml:5: GPU 0 (0000:17:00.0): no room for 3 x H200X-70C: 2 fit");
  EXPECT_EQ(refused(bare, "{H200X-35C: 1, H200X-70C: 2}"), kTooMuch);
  MigNode node;
  node.make("{H200X-35C: 4}");
  EXPECT_EQ(refused(node, "{H200X-70C: 3}"),
            "p.yaml:4: GPU 0 (0000:17:00.0): no room for 3 x H200X-70C: by its driver 2 fit");
  EXPECT_THAT(refused(node, "{H200X-28C: 1, H200X-70C: 2}"), HasSubstr("at least 172032 MiB"));
  MigNode mixed;
  mixed.make("{H200X-70C: 1}", true);
  EXPECT_EQ(
      refused(mixed, "{H200X-35C: 1, H200X-70C: 2}"),
      "p.yaml:4: GPU 0 (0000:17:00.0): no room for 2 x H200X-70C: by its driver 1 fit while mixed sizes "
      "are on");
}

// By the table alone, and of a board that is in none not at all.
TEST(MixedSizes, AreLeftToTheDriverWhereNothingIsKnown) {
  MigNode node;
  node.make("{H200X-35C: 4}");
  const Profile three = of_mixed_sizes("{H200X-70C: 3}");
  const Profile both = of_mixed_sizes("{H200X-28C: 4, H200X-70C: 1}");
  VgpuSnapshot snapshot = must(look(node.host()));
  mdev::ManagedGpu said = must(node.mig.read(test::at(MigNode::kGpu)));
  said.mixed_sizes = mdev::GpuSwitch::on;
  said.types.clear();
  snapshot.managed.insert_or_assign(test::at(MigNode::kGpu), said);
  EXPECT_THAT(message_of(plan_profile(three, snapshot).gpus.at(0).refusal), HasSubstr("2 fit"));
  EXPECT_THAT(message_of(plan_profile(both, snapshot).gpus.at(0).refusal), HasSubstr("144384 MiB"));
  mdev::VgpuGpu& gpu = snapshot.inventory.gpus.at(0);
  const auto forget = [](std::vector<mdev::VgpuType>& types) {
    for (mdev::VgpuType& type : types) type.max_instances = type.framebuffer_mib = std::nullopt;
  };
  forget(gpu.unlisted);
  for (mdev::VgpuParent& parent : gpu.parents) forget(parent.types);
  EXPECT_FALSE(plan_profile(three, snapshot).gpus.at(0).refusal);
  EXPECT_FALSE(plan_profile(both, snapshot).gpus.at(0).refusal);
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
TEST(MigApply, TheRollbackFromTimeSlicedOnesKnowsTheMode) {
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

// Somebody's processes are on it, and what is in it could not be made again.
TEST(MigPlan, TakesNoInstanceAwayThatIsDivided) {
  MigNode node;
  node.make("{H200X-1-18C: 7}");
  const auto refusal_of = [&](const char* vgpus, bool divided) {
    const Profile profile = on("[0]", vgpus);
    VgpuSnapshot snapshot = must(look(node.host(), {&profile, 1}));
    mdev::ManagedGpu& gpu = *snapshot.managed.at(test::at(MigNode::kGpu));
    gpu.instances.back().divided = divided;
    std::uint32_t instance = 0;
    for (mdev::VgpuDevice& device : snapshot.inventory.gpus.at(0).devices) device.gpu_instance = ++instance;
    return plan_profile(profile, snapshot).gpus.at(0).refusal;
  };
  for (const char* vgpus : {"{H200X-3-71C: 2}", "{H200X-35C: 1}"}) {  // by itself, and with the mode
    EXPECT_FALSE(refusal_of(vgpus, false));
    const auto refusal = refusal_of(vgpus, true);
    EXPECT_EQ(code_of(refusal), Errc::refused);
    EXPECT_EQ(message_of(refusal),
              "p.yaml:4: GPU 0 (0000:17:00.0): GPU instance 7 would have to be removed, and it is divided "
              "into compute "
              "instances");
    EXPECT_THAT(hint_of(refusal), HasSubstr("-dci -gi 7"));
  }
  EXPECT_FALSE(refusal_of("{H200X-1-18C: 6}", true)) << "nothing has to go";
}

// Who uses its vGPUs would else go for nothing.
TEST(MigPlan, ReportsBesideTheUsersWhatLasts) {
  MigNode node;
  node.make("{H200X-1-18C: 2}");
  Profile whole = on("[0]", "{}");
  whole.items[0].whole = true;
  VgpuSnapshot snapshot = must(look(node.host(), {&whole, 1}));
  snapshot.managed.at(test::at(MigNode::kGpu))->instances.back().divided = true;
  const std::string used = snapshot.inventory.gpus.at(0).devices.at(0).id.text;
  snapshot.use.users[used] = {{.kind = vfio::DeviceUser::Kind::virtual_machine,
                               .name = "tenant",
                               .pid = 412,
                               .what = "it",
                               .pod_uid = {}}};
  const GpuPlan plan = plan_profile(whole, snapshot).gpus.at(0);
  EXPECT_THAT(plan.reasons,
              ElementsAre(HasSubstr("divided into compute instances"),
                          HasSubstr("(H200X-1-18C) would have to be removed: VM tenant (pid 412)")));
  for (const std::string& reason : plan.reasons) EXPECT_THAT(message_of(plan.refusal), HasSubstr(reason));
  EXPECT_THAT(hint_of(plan.refusal), HasSubstr("-dci"));
  EXPECT_THAT(plan.steps, IsEmpty());
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
}  // namespace ferry::vgpu
