// SPDX-License-Identifier: Apache-2.0
// The stages of a policy undone: a later stage fails, or a GPU is unplugged.
#include <cerrno>

#include <gmock/gmock.h>

#include "host/gpu_conditions.h"
#include "tests/host/node_apply_host.h"

namespace ferry::host {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using Status = vfio::RebindResult::Status;

/// The later of two stages fails on a GPU.
class NodeApplyUndo : public NodeApplyTest {
 protected:
  static constexpr const char* kDivided =
      "  - {devices: [0], mode: vgpu, vgpu-devices: {T4-4Q: 2}}\n"
      "  - {devices: [2], mode: passthrough}\n";
  static constexpr const char* kAway =
      "  - {devices: [0, 1], mode: passthrough}\n"
      "  - {devices: [2], mode: vgpu, vgpu-devices: {T4-8Q: 1}}\n";
  static constexpr const char* kRecords = "run/ferry/hostd/moves";

  void no_bind_to_vfio(const std::string& address) {
    kernel_.fail_for_good({.path = "sys/bus/pci/drivers/vfio-pci/bind", .value = address}, EIO);
  }
  const GpuCondition& condition(const NodeOutcome& outcome, const char* address) {
    standings_ = conditions_of(outcome);
    return standings_.at(vfio::PciAddress::parse(address).value());
  }
  GpuConditions standings_;
};

TEST_F(NodeApplyUndo, MakesVgpusAgainUnderTheirUuidsWhereTheGpuCannotBeBoundToVfio) {
  apply(kDivided);
  const auto vgpus = mdev_.devices_on(kFirst);
  no_bind_to_vfio(kFirst);
  const NodeOutcome outcome = apply(kAway);
  EXPECT_EQ(kernel_.driver_of(kFirst), "nvidia");
  EXPECT_EQ(mdev_.devices_on(kFirst), vgpus);
  const vgpu::GpuOutcome& gpu = outcome.vgpus.gpus.at(0);
  EXPECT_EQ(gpu.kind, vgpu::GpuOutcome::Kind::failed);
  ASSERT_TRUE(gpu.error);
  EXPECT_THAT(gpu.error->message,
              HasSubstr("it could not be bound for passthrough: bind 0000:05:00.0 to vfio-pci"));
  EXPECT_THAT(gpu.undo_errors, IsEmpty());
  EXPECT_EQ(condition(outcome, kFirst).state, api::GpuState::failed);
  EXPECT_THAT(state(), ElementsAre("nvidia 2", "vfio-pci 0", "nvidia 1")) << "the others go on";

  kernel_.mend();
  apply(kAway);
  EXPECT_THAT(state(), ElementsAre("vfio-pci 0", "vfio-pci 0", "nvidia 1"));
}

TEST_F(NodeApplyUndo, SaysBothErrorsWhereVgpusDoNotComeAgain) {
  apply(kDivided);
  no_bind_to_vfio(kFirst);
  mdev_.swallow_creates = true;
  const NodeOutcome outcome = apply("  - {devices: [0], mode: passthrough}\n");
  EXPECT_THAT(state(), ElementsAre("nvidia 0", "nvidia 0", "vfio-pci 0"));
  EXPECT_THAT(condition(outcome, kFirst).reasons,
              ElementsAre(HasSubstr("it could not be bound for passthrough: bind"),
                          HasSubstr("still to do: create")));
}

TEST_F(NodeApplyUndo, RefusesAsTheLaterStageDidWhereThatWroteNothing) {
  apply(kDivided);
  const auto vgpus = mdev_.devices_on(kFirst);
  // A VM takes the GPU once its vGPUs have gone: there is no other moment for it.
  probe_.before_scan = [&] {
    if (mdev_.devices_on(kFirst).empty()) probe_.held = kFirst;
  };
  const NodeOutcome outcome = apply("  - {devices: [0], mode: passthrough}\n");
  EXPECT_EQ(mdev_.devices_on(kFirst), vgpus);
  EXPECT_EQ(outcome.vgpus.gpus.at(0).kind, vgpu::GpuOutcome::Kind::refused);
  const GpuCondition& refused = condition(outcome, kFirst);
  EXPECT_EQ(refused.state, api::GpuState::blocked);
  EXPECT_THAT(refused.reasons, ElementsAre(HasSubstr("VM tenant (pid 412)")));
}

TEST_F(NodeApplyUndo, TakesAGpuToVfioAgainThatGetsNoVgpus) {
  apply(kAway);
  const auto record = kernel_.read_file(std::string(kRecords) + "/5.json").value();
  mdev_.swallow_creates = true;
  const NodeOutcome outcome = apply(kDivided);
  EXPECT_THAT(state(), ElementsAre("vfio-pci 0", "vfio-pci 0", "vfio-pci 0")) << "the others go on";
  EXPECT_EQ(kernel_.override_of(kFirst), "vfio-pci");
  EXPECT_EQ(kernel_.read_file(std::string(kRecords) + "/5.json").value(), record);
  ASSERT_THAT(outcome.unbound.results, SizeIs(1));
  ASSERT_EQ(outcome.unbound.results[0].status, Status::failed);
  EXPECT_THAT(outcome.unbound.results[0].error->message,
              testing::AllOf(HasSubstr("0000:05:00.0 could not be given its vGPUs: "),
                             HasSubstr("; all of it is on vfio as before")));
  EXPECT_THAT(condition(outcome, kFirst).reasons, SizeIs(1));

  mdev_.swallow_creates = false;
  apply(kDivided);
  EXPECT_THAT(state(), ElementsAre("nvidia 2", "vfio-pci 0", "vfio-pci 0"));
}

// What a GPU on vfio can carry is known only once it is back.
TEST_F(NodeApplyUndo, TakesAGpuToVfioAgainThatOffersNoSuchType) {
  apply(kAway);
  const NodeOutcome outcome = apply("  - {devices: [0], mode: vgpu, vgpu-devices: {L40S-12Q: 1}}\n");
  EXPECT_EQ(kernel_.driver_of(kFirst), "vfio-pci");
  ASSERT_THAT(outcome.unbound.results, SizeIs(1));
  ASSERT_EQ(outcome.unbound.results[0].status, Status::refused);
  EXPECT_THAT(outcome.unbound.results[0].refusal.reasons, ElementsAre(HasSubstr("L40S-12Q")));
}

// Nobody knows what it had before; what it has is all that can be put back.
TEST_F(NodeApplyUndo, LeavesNoTraceOnAGpuThatSomebodyElseHadPutOnVfio) {
  kernel_.add_driver({.name = "vfio-pci", .vfio = true});
  kernel_.add_function(test::kinds::kTeslaT4Board, "0000:08:00.0", 8, "vfio-pci");
  mdev_.add_parent("0000:08:00.0");
  mdev_.swallow_creates = true;
  const NodeOutcome outcome = apply("  - {devices: [3], mode: vgpu, vgpu-devices: {T4-4Q: 2}}\n");
  EXPECT_EQ(outcome.vgpus.gpus.at(3).kind, vgpu::GpuOutcome::Kind::failed);
  EXPECT_EQ(kernel_.driver_of("0000:08:00.0"), "vfio-pci");
  EXPECT_EQ(kernel_.override_of("0000:08:00.0"), "");
  EXPECT_THAT(kernel_.list(kRecords).value_or(std::vector<std::string>()), IsEmpty());
}

TEST_F(NodeApplyUndo, TakesNoGpuFromWhoHasTakenItMeanwhile) {
  apply(kAway);
  mdev_.swallow_creates = true;
  probe_.before_scan = [&] {
    if (kernel_.driver_of(kFirst) == "nvidia") probe_.held = kFirst;
  };
  const NodeOutcome outcome = apply("  - {devices: [0], mode: vgpu, vgpu-devices: {T4-4Q: 2}}\n");
  EXPECT_EQ(kernel_.driver_of(kFirst), "nvidia");
  ASSERT_TRUE(outcome.unbound.results.at(0).error);
  EXPECT_THAT(outcome.unbound.results[0].error->message,
              testing::ContainsRegex("could not be given its vGPUs: .*; taking it to vfio again failed too: "
                                     ".*in use: VM tenant"));
  EXPECT_THAT(outcome.vgpus.gpus.at(0).undo_errors, SizeIs(1));
}

/// The first GPU has another one in its IOMMU group, and both are away.
class NodeApplyUndoOfTwo : public NodeApplyUndo {
 protected:
  static constexpr const char* kOther = "0000:08:00.0";
  static constexpr const char* kBothDivided = "  - {devices: [0, 3], mode: vgpu, vgpu-devices: {T4-4Q: 1}}\n";
  NodeApplyUndoOfTwo() {
    kernel_.add_function(test::kinds::kTeslaT4Board, kOther, 5, "nvidia");
    mdev_.add_parent(kOther);
    apply("  - {devices: [0, 3], mode: passthrough}\n");
    kernel_.fail_for_good(made_on_other(), EIO);
  }
  // What an undisturbed run writes to make the other one's vGPU.
  test::HostChange made_on_other() {
    kernel_.forget_changes();
    apply(kBothDivided);
    test::HostChange made;
    for (const test::HostChange& change : kernel_.changes())
      if (change.path.find(std::string(kOther) + "/mdev_supported_types") != std::string::npos) made = change;
    apply("  - {devices: [0, 3], mode: passthrough}\n");
    return made;
  }
};

TEST_F(NodeApplyUndoOfTwo, TakesBothToVfioAgain) {
  const NodeOutcome outcome = apply(kBothDivided);
  for (const char* gpu : {kFirst, kOther}) {
    EXPECT_EQ(kernel_.driver_of(gpu), "vfio-pci");
    EXPECT_EQ(condition(outcome, gpu).state, api::GpuState::failed);
    EXPECT_THAT(condition(outcome, gpu).reasons.front(),
                HasSubstr("0000:08:00.0 could not be given its vGPUs"));
  }
  EXPECT_THAT(mdev_.devices_on(kFirst), IsEmpty());
}

TEST_F(NodeApplyUndoOfTwo, TakesNoVgpuFromAVm) {
  probe_.before_scan = [&] {
    if (const auto vgpus = mdev_.devices_on(kFirst); !vgpus.empty()) probe_.held = vgpus.front().substr(6);
  };
  const NodeOutcome outcome = apply(kBothDivided);
  EXPECT_THAT(mdev_.devices_on(kFirst), SizeIs(1));
  EXPECT_EQ(kernel_.driver_of(kFirst), "nvidia");
  EXPECT_THAT(condition(outcome, kFirst).reasons.front(),
              testing::ContainsRegex("0000:08:00.0 could not be given its vGPUs: .*; taking it to vfio again "
                                     "failed too: 0000:05:00.0 carries 1 vGPU"));
}

/// The first GPU has a function for audio, which went to vfio with it, and one that somebody else has put
/// there.
class NodeApplyUnplugged : public NodeApplyTest {
 protected:
  static constexpr const char* kAudio = "0000:05:00.1";
  static constexpr const char* kForeign = "0000:05:00.2";
  static constexpr const char* kAllAway = "  - {devices: all, mode: passthrough}\n";
  NodeApplyUnplugged() {
    kernel_.add_driver({.name = "snd_hda_intel", .ids = {"class:0403"}});
    kernel_.add_driver({.name = "vfio-pci", .vfio = true});
    kernel_.add_function({"10de:10f8", 0x040300}, kAudio, 5, "snd_hda_intel");
    kernel_.add_function({.address = kForeign,
                          .ids = "10de:1ad8",
                          .class_code = 0x0c0330,
                          .group = 5,
                          .driver = "vfio-pci",
                          .driver_override = "vfio-pci"});
    apply(kAllAway);
    unplug(kFirst);
  }
  void unplug(const std::string& address) {
    kernel_.remove("sys/class/mdev_bus/" + address);
    kernel_.remove_function(address);
  }
  std::vector<std::string> drivers() const {
    return {kernel_.driver_of(kAudio), kernel_.driver_of(kForeign), kernel_.driver_of(kSecond)};
  }
};

TEST_F(NodeApplyUnplugged, GivesBackWhatWentAlongAndNothingElse) {
  ASSERT_THAT(drivers(), ElementsAre("vfio-pci", "vfio-pci", "vfio-pci"));
  kernel_.forget_changes();
  const auto preview = preview_policy(context(), policy(kAllAway)).value();
  EXPECT_THAT(kernel_.changes(), IsEmpty());
  ASSERT_THAT(preview.unbound.plan.rebinds, SizeIs(1));
  EXPECT_THAT(preview.unbound.plan.rebinds[0].steps, SizeIs(3));
  const auto outcome = apply(kAllAway);
  EXPECT_THAT(drivers(), ElementsAre("snd_hda_intel", "vfio-pci", "vfio-pci"));
  EXPECT_EQ(kernel_.override_of(kAudio), "");
  ASSERT_THAT(outcome.unbound.results, SizeIs(1));
  EXPECT_EQ(outcome.unbound.results[0].status, Status::done);
  kernel_.forget_changes();
  apply(kAllAway);
  EXPECT_THAT(kernel_.changes(), IsEmpty());
}

TEST_F(NodeApplyUnplugged, LeavesItToAVmThatHasItAndDoesTheRest) {
  probe_.held = kAudio;
  const auto outcome = apply("  - {devices: all, mode: host}\n");
  EXPECT_THAT(drivers(), ElementsAre("vfio-pci", "vfio-pci", "nvidia"));
  ASSERT_THAT(outcome.unbound.results, SizeIs(3));
  EXPECT_EQ(outcome.unbound.results[2].status, Status::refused);
  EXPECT_THAT(outcome.unbound.results[2].refusal.reasons, ElementsAre(HasSubstr("0000:05:00.1 is in use")));
}

TEST_F(NodeApplyUnplugged, GivesItBackThoughNoGpuIsLeft) {
  unplug(kSecond);
  unplug(kThird);
  apply(kAllAway);
  EXPECT_THAT(drivers(), ElementsAre("snd_hda_intel", "vfio-pci", ""));
}

}  // namespace
}  // namespace ferry::host
