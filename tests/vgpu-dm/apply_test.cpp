// SPDX-License-Identifier: Apache-2.0
#include "vgpu-dm/apply/apply.h"

#include <cerrno>

#include <gmock/gmock.h>

#include "tests/vgpu-dm/gpu_node.h"
#include "vgpu-dm/plan/comparison.h"

namespace ferry::vgpu {
namespace {

using Kind = GpuOutcome::Kind;
using test::GpuNode;
using test::on;
using test::profile;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr const char* kA = "5b6c0f0e-3b1d-4f0e-9a57-2f6f5f1f7a10";
constexpr const char* kB = "5b6c0f0e-3b1d-4f0e-9a57-2f6f5f1f7a11";

std::string ours(const char* type, unsigned number) {
  return GpuNode::uuid(GpuNode::kFirst, type, number);
}
std::string create(const std::string& address, const std::string& type, const std::string& uuid) {
  return uuid + " > sys/bus/pci/devices/" + address + "/mdev_supported_types/" + type + "/create";
}
std::string remove(const std::string& address, const std::string& uuid) {
  return "1 > sys/bus/pci/devices/" + address + "/" + uuid + "/remove";
}

class Apply : public testing::Test {
 protected:
  static std::vector<Kind> kinds(const VgpuOutcome& outcome) {
    std::vector<Kind> out;
    out.reserve(outcome.gpus.size());
    for (const GpuOutcome& gpu : outcome.gpus) out.push_back(gpu.kind);
    return out;
  }
  GpuNode node;
};

TEST_F(Apply, MakesTheNodeAgreeByTheFewestWrites) {
  node.mdev.add_device(GpuNode::kFirst, "nvidia-233", kA);
  node.mdev.add_device(GpuNode::kSecond, "nvidia-232", kB);
  const Profile desired = profile(
      "  - {devices: all, vgpu-devices: {}}\n"
      "  - {devices: [0, 1], vgpu-devices: {T4-4Q: 2}}\n");
  const VgpuOutcome outcome = node.apply(desired);
  EXPECT_THAT(kinds(outcome), ElementsAre(Kind::changed, Kind::changed, Kind::already_so));
  EXPECT_EQ(outcome.status(), ExitStatus::done);
  EXPECT_THAT(node.kernel.writes(),
              testing::UnorderedElementsAre(
                  remove(GpuNode::kFirst, kA), create(GpuNode::kFirst, "nvidia-232", ours("T4-4Q", 0)),
                  create(GpuNode::kFirst, "nvidia-232", ours("T4-4Q", 1)),
                  create(GpuNode::kSecond, "nvidia-232", GpuNode::uuid(GpuNode::kSecond, "T4-4Q", 0))));
  EXPECT_TRUE(assert_profile(desired, node.snapshot().inventory));
}

TEST_F(Apply, WritesNothingTheSecondTime) {
  const Profile desired = on("[0, 1]", "{T4-4Q: 2}");
  node.make(desired);
  const VgpuOutcome outcome = node.apply(desired);
  EXPECT_THAT(kinds(outcome), ElementsAre(Kind::already_so, Kind::already_so, Kind::unmanaged));
  EXPECT_THAT(node.kernel.changes(), IsEmpty());
}

TEST_F(Apply, GivesTheSameUuidsAfterEverythingWasLost) {
  const Profile desired = on("[0, 1]", "{T4-4Q: 2}");
  node.make(desired);
  const std::string before = node.state();
  GpuNode rebooted;
  rebooted.make(desired);
  EXPECT_EQ(rebooted.state(), before);
}

TEST_F(Apply, RefusesOneGpuAndChangesTheOther) {
  node.mdev.add_device(GpuNode::kFirst, "nvidia-233", kA);
  node.probe.hold(kA);
  const VgpuOutcome outcome = node.apply(on("[0, 1]", "{T4-4Q: 1}"));
  EXPECT_THAT(kinds(outcome), ElementsAre(Kind::refused, Kind::changed, Kind::unmanaged));
  EXPECT_EQ(test::code_of(outcome.gpus[0].error), Errc::refused);
  EXPECT_EQ(outcome.status(), ExitStatus::refused);
  EXPECT_THAT(node.mdev.devices_on(GpuNode::kFirst), ElementsAre(std::string("T4-8Q ") + kA));
}

TEST_F(Apply, RefusesWhatAVmTookRightBeforeTheFirstWrite) {
  node.mdev.add_device(GpuNode::kFirst, "nvidia-233", kA);
  node.probe.before_scan = [&](int look) {
    if (look == 2) node.probe.hold(kA);
  };
  const VgpuOutcome outcome = node.apply(on("[0]", "{T4-4Q: 1}"));
  EXPECT_EQ(outcome.gpus[0].kind, Kind::refused);
  EXPECT_EQ(test::code_of(outcome.gpus[0].error), Errc::refused);
  EXPECT_THAT(node.kernel.changes(), IsEmpty());
}

TEST_F(Apply, WritesNothingWhenNobodyCanSayWhoUsesWhat) {
  node.mdev.add_device(GpuNode::kFirst, "nvidia-233", kA);
  node.probe.error = Error{.code = Errc::unreachable, .message = "no /proc", .hint = {}};
  const auto outcome = apply_profile(node.host(), on("all", "{}"));
  ASSERT_FALSE(outcome);
  EXPECT_EQ(outcome.error().code, Errc::unreachable);
  EXPECT_THAT(node.kernel.changes(), IsEmpty());
}

TEST_F(Apply, SaysThatAConfigurationAsksTheImpossible) {
  const VgpuOutcome outcome = node.apply(on("[0, 1]", "{T4-8Q: 3}"));
  EXPECT_THAT(kinds(outcome), ElementsAre(Kind::refused, Kind::refused, Kind::unmanaged));
  EXPECT_EQ(outcome.status(), ExitStatus::refused);
  EXPECT_THAT(node.kernel.changes(), IsEmpty());
}

TEST_F(Apply, SaysRefusedWhereOneGpuCannotHaveItAndAnotherGotIt) {
  const VgpuOutcome outcome =
      node.apply(profile("  - {devices: [0], vgpu-devices: {T4-8Q: 3}}\n"
                         "  - {devices: [1], vgpu-devices: {T4-8Q: 1}}\n"));
  EXPECT_THAT(kinds(outcome), ElementsAre(Kind::refused, Kind::changed, Kind::unmanaged));
  EXPECT_EQ(test::code_of(outcome.gpus[0].error), Errc::invalid_config);
  EXPECT_EQ(outcome.status(), ExitStatus::refused);
  // The second time nothing is written, and it is refused all the same.
  EXPECT_EQ(node.apply(on("[0]", "{T4-8Q: 3}")).status(), ExitStatus::refused);
}

TEST_F(Apply, GoesBackWhenTheDriverHasLessRoomThanItSaid) {
  node.mdev.add_device(GpuNode::kFirst, "nvidia-233", kA);
  const std::string before = node.state();
  node.mdev.hidden_vgpus = 1;
  node.kernel.forget_changes();
  const VgpuOutcome outcome = node.apply(on("[0]", "{T4-4Q: 4}"));
  EXPECT_EQ(outcome.gpus[0].kind, Kind::failed);
  EXPECT_EQ(test::code_of(outcome.gpus[0].error), std::errc::invalid_argument);
  EXPECT_EQ(test::message_of(outcome.gpus[0].error),
            "create T4-4Q " + ours("T4-4Q", 3) +
                " on 0000:05:00.0: write /sys/bus/pci/devices/0000:05:00.0/" +
                "mdev_supported_types/nvidia-232/create: Invalid argument");
  EXPECT_THAT(outcome.gpus[0].undo_errors, IsEmpty());
  EXPECT_EQ(outcome.status(), ExitStatus::failed);
  EXPECT_EQ(node.state(), before);
}

TEST_F(Apply, AsksTheDriverAgainOnceTheOthersAreGone) {
  // Nothing says beforehand how many fit: neither a description nor the table.
  node.mdev.add_device(GpuNode::kFirst, "nvidia-232", kA);
  const std::string before = node.state();
  node.undescribe(GpuNode::kFirst, "nvidia-233");
  node.make_unknown(GpuNode::kFirst);
  const VgpuOutcome outcome = node.apply(on("[0]", "{T4-8Q: 3}"));
  EXPECT_EQ(outcome.gpus[0].kind, Kind::failed);
  EXPECT_EQ(test::message_of(outcome.gpus[0].error),
            "p.yaml:5: GPU 0 (0000:05:00.0): no room for 3 x T4-8Q: 2 fit");
  EXPECT_EQ(outcome.status(), ExitStatus::failed);
  EXPECT_EQ(node.state(), before);
  EXPECT_THAT(node.kernel.writes(),
              ElementsAre(remove(GpuNode::kFirst, kA), create(GpuNode::kFirst, "nvidia-232", kA)));
}

TEST_F(Apply, KnowsFromTheTableWhatCannotFitBeforeAnythingGoes) {
  node.mdev.add_device(GpuNode::kFirst, "nvidia-232", kA);
  node.undescribe(GpuNode::kFirst, "nvidia-233");
  const VgpuOutcome outcome = node.apply(on("[0]", "{T4-8Q: 3}"));
  EXPECT_EQ(outcome.gpus[0].kind, Kind::refused);
  EXPECT_EQ(test::message_of(outcome.gpus[0].error),
            "p.yaml:5: GPU 0 (0000:05:00.0): no room for 3 x T4-8Q: 2 fit");
  EXPECT_EQ(outcome.status(), ExitStatus::refused);
  EXPECT_THAT(node.kernel.writes(), IsEmpty());
}

TEST_F(Apply, DoesNotBelieveACreationThatLeavesNothing) {
  node.mdev.swallow_creates = true;
  const VgpuOutcome outcome = node.apply(on("[0]", "{T4-4Q: 1}"));
  EXPECT_EQ(outcome.gpus[0].kind, Kind::failed);
  EXPECT_EQ(test::code_of(outcome.gpus[0].error), Errc::failed);
  EXPECT_EQ(test::message_of(outcome.gpus[0].error),
            "create T4-4Q " + ours("T4-4Q", 0) +
                " on 0000:05:00.0: the kernel took the write, but there is no such vGPU");
}

TEST_F(Apply, DoesNotBelieveARemovalThatRemovesNothing) {
  node.mdev.add_device(GpuNode::kFirst, "nvidia-232", kA);
  node.mdev.swallow_removes = true;
  const VgpuOutcome outcome = node.apply(on("[0]", "{}"));
  EXPECT_EQ(outcome.gpus[0].kind, Kind::failed);
  EXPECT_EQ(test::message_of(outcome.gpus[0].error),
            std::string("remove T4-4Q ") + kA +
                " from 0000:05:00.0: the kernel took the write, but the vGPU is still there");
}

TEST_F(Apply, TakesBackAVgpuThatNoDriverTakes) {
  node.mdev.leave_driverless = true;
  const VgpuOutcome outcome = node.apply(on("[0]", "{T4-4Q: 1}"));
  EXPECT_EQ(outcome.gpus[0].kind, Kind::failed);
  EXPECT_EQ(test::message_of(outcome.gpus[0].error),
            "create T4-4Q " + ours("T4-4Q", 0) +
                " on 0000:05:00.0: the kernel took the write, but no driver has taken the vGPU");
  EXPECT_EQ(node.state(), "");
}

TEST_F(Apply, ReplacesAVgpuThatNoDriverHasTaken) {
  node.mdev.leave_driverless = true;
  node.mdev.add_device(GpuNode::kFirst, "nvidia-232", ours("T4-4Q", 0));
  node.mdev.leave_driverless = false;
  const VgpuOutcome outcome = node.apply(on("[0]", "{T4-4Q: 1}"));
  EXPECT_EQ(outcome.gpus[0].kind, Kind::changed) << test::message_of(outcome.gpus[0].error);
  EXPECT_THAT(node.kernel.writes(), ElementsAre(remove(GpuNode::kFirst, ours("T4-4Q", 0)),
                                                create(GpuNode::kFirst, "nvidia-232", ours("T4-4Q", 0))));
}

TEST_F(Apply, UndoesWithoutTakingAwayWhatAVmHasTakenMeanwhile) {
  node.mdev.hidden_vgpus = 3;  // one can be made
  node.probe.before_scan = [&](int look) {
    if (look == 1) node.probe.hold(ours("T4-4Q", 0));
  };
  const VgpuOutcome outcome = node.apply(on("[0]", "{T4-4Q: 2}"));
  EXPECT_EQ(outcome.gpus[0].kind, Kind::failed);
  ASSERT_EQ(outcome.gpus[0].undo_errors.size(), 1U);
  EXPECT_EQ(outcome.gpus[0].undo_errors[0].message,
            "undo: still to do: remove T4-4Q " + ours("T4-4Q", 0) + " from 0000:05:00.0");
  EXPECT_THAT(node.mdev.devices_on(GpuNode::kFirst), ElementsAre("T4-4Q " + ours("T4-4Q", 0)));
}

TEST_F(Apply, KeepsTheFirstErrorAndThoseOfTheUndo) {
  node.mdev.add_device(GpuNode::kFirst, "nvidia-233", kA);
  node.mdev.hidden_vgpus = 16;  // nothing can be made any more
  const VgpuOutcome outcome = node.apply(on("[0]", "{T4-4Q: 1}"));
  EXPECT_EQ(outcome.gpus[0].kind, Kind::failed);
  EXPECT_THAT(test::message_of(outcome.gpus[0].error), testing::StartsWith("create T4-4Q "));
  ASSERT_EQ(outcome.gpus[0].undo_errors.size(), 1U);
  EXPECT_EQ(outcome.gpus[0].undo_errors[0].message,
            std::string("undo: create T4-8Q ") + kA +
                " on 0000:05:00.0: write /sys/bus/pci/devices/0000:05:00.0/mdev_supported_types/nvidia-233/"
                "create: Invalid argument");
}

TEST_F(Apply, LogsEachWriteAndItsResult) {
  std::vector<std::string> seen;
  node.kernel.fail_change(2, EIO);
  const auto outcome =
      apply_profile(node.host(), on("[0]", "{T4-4Q: 2}"), [&](const VgpuStep& step, const Result<>& done) {
        seen.push_back(step.text().substr(0, 12) + (done ? " done" : " failed"));
      });
  ASSERT_TRUE(outcome);
  EXPECT_THAT(seen, ElementsAre("create T4-4Q done", "create T4-4Q failed", "remove T4-4Q done"));
}

TEST_F(Apply, LeavesAGpuAloneWhoseDeviceWentAwayMeanwhile) {
  node.mdev.add_device(GpuNode::kFirst, "nvidia-233", kA);
  node.probe.before_scan = [&](int look) {
    if (look == 2) node.mdev.remove_device(GpuNode::kFirst, kA);
  };
  const VgpuOutcome outcome = node.apply(on("[0]", "{}"));
  EXPECT_EQ(outcome.gpus[0].kind, Kind::already_so);
  EXPECT_THAT(node.kernel.changes(), IsEmpty());
}

TEST_F(Apply, RemovesTheOthersWhereOneWentAwayMeanwhile) {
  node.mdev.add_device(GpuNode::kFirst, "nvidia-232", kA);
  node.mdev.add_device(GpuNode::kFirst, "nvidia-232", ours("T4-4Q", 0));
  node.mdev.add_device(GpuNode::kFirst, "nvidia-232", ours("T4-4Q", 1));
  node.probe.before_scan = [&](int look) {
    if (look == 2) node.mdev.remove_device(GpuNode::kFirst, kA);
  };
  const VgpuOutcome outcome = node.apply(on("[0]", "{}"));
  EXPECT_EQ(outcome.gpus[0].kind, Kind::changed) << test::message_of(outcome.gpus[0].error);
  EXPECT_THAT(outcome.gpus[0].done, testing::SizeIs(2));
  EXPECT_EQ(node.state(), "");
}

TEST_F(Apply, OnANodeWithoutGpusDoesNothing) {
  const vfio::AcceleratorRules none{.vendors = {0x1002}, .classes = {vfio::PciClass::vga}};
  VgpuHost host = node.host();
  host.rules = none;
  const auto outcome = apply_profile(host, on("all", "{T4-4Q: 1}"));
  ASSERT_TRUE(outcome);
  EXPECT_THAT(outcome->gpus, IsEmpty());
  EXPECT_EQ(outcome->status(), ExitStatus::done);
  EXPECT_THAT(outcome->notes, testing::Contains("p.yaml:4: matches no GPU of this node"));
}

TEST_F(Apply, RemovesWhatItHasMade) {
  node.mdev.add_device(GpuNode::kSecond, "nvidia-232", kB);
  node.make(on("[0, 1]", "{T4-4Q: 2}"));
  const auto outcome = remove_vgpus(node.host(), {});
  ASSERT_TRUE(outcome);
  EXPECT_THAT(kinds(*outcome), ElementsAre(Kind::changed, Kind::changed, Kind::already_so));
  EXPECT_EQ(node.state(), std::string("0000:06:00.0 T4-4Q ") + kB + "\n");
  EXPECT_THAT(node.kernel.writes(), testing::SizeIs(3));
}

TEST_F(Apply, RefusesToRemoveWhatAVmHolds) {
  node.make(on("[0]", "{T4-4Q: 1}"));
  node.probe.hold(ours("T4-4Q", 0));
  const auto outcome = remove_vgpus(node.host(), {});
  ASSERT_TRUE(outcome);
  EXPECT_EQ(outcome->status(), ExitStatus::refused);
  EXPECT_THAT(node.kernel.changes(), IsEmpty());
}

}  // namespace
}  // namespace ferry::vgpu
