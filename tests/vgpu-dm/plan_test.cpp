// SPDX-License-Identifier: Apache-2.0
#include "vgpu-dm/plan/plan.h"

#include <gmock/gmock.h>

#include "tests/support/must.h"
#include "tests/vgpu-dm/gpu_node.h"

namespace ferry::vgpu {
namespace {

using test::GpuNode;
using test::on;
using test::profile;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr const char* kA = "5b6c0f0e-3b1d-4f0e-9a57-2f6f5f1f7a10";
constexpr const char* kB = "5b6c0f0e-3b1d-4f0e-9a57-2f6f5f1f7a11";
constexpr const char* kC = "5b6c0f0e-3b1d-4f0e-9a57-2f6f5f1f7a12";

std::string ours(const char* type, unsigned number) {
  return GpuNode::uuid(GpuNode::kFirst, type, number);
}

class ProfilePlan : public testing::Test {
 protected:
  GpuPlan first(const Profile& desired) { return plan_profile(desired, node.snapshot()).gpus.at(0); }
  static std::vector<std::string> steps(const GpuPlan& plan) {
    std::vector<std::string> out;
    out.reserve(plan.steps.size());
    for (const VgpuStep& step : plan.steps) out.push_back(step.text());
    return out;
  }
  static std::string first_reason(const GpuPlan& plan) {
    return plan.steps.empty() ? "(no step)" : plan.steps[0].why;
  }
  static std::vector<std::string> kept(const GpuPlan& plan) {
    std::vector<std::string> out;
    out.reserve(plan.kept.size());
    for (const mdev::VgpuId& id : plan.kept) out.push_back(id.text);
    return out;
  }
  /// Expects a refusal without steps; gives its words.
  static std::string refusal(const GpuPlan& plan, Errc code) {
    EXPECT_THAT(plan.steps, IsEmpty());
    if (!plan.refusal) return "(none)";
    EXPECT_EQ(test::code_of(plan.refusal), code);
    return test::message_of(plan.refusal);
  }
  void add_vgpu(const char* type, const char* uuid) { node.mdev.add_device(GpuNode::kFirst, type, uuid); }

  GpuNode node;
};

TEST_F(ProfilePlan, CreatesWhatIsMissingUnderStableUuids) {
  const GpuPlan plan = first(on("[0]", "{T4-4Q: 2}"));
  EXPECT_THAT(steps(plan), ElementsAre("create T4-4Q " + ours("T4-4Q", 0) + " on 0000:05:00.0",
                                       "create T4-4Q " + ours("T4-4Q", 1) + " on 0000:05:00.0"));
  EXPECT_EQ(first_reason(plan), "p.yaml:5 asks for 2, none is there");
  EXPECT_EQ(plan.place, "p.yaml:4");
  EXPECT_EQ(text(plan.desired), "2 x T4-4Q");
  EXPECT_EQ(text(plan.found), "none");
}

TEST_F(ProfilePlan, IsEmptyWhereAllFits) {
  add_vgpu("nvidia-232", kA);
  const GpuPlan plan = first(on("[0]", "{T4-4Q: 1}"));
  EXPECT_THAT(plan.steps, IsEmpty());
  EXPECT_FALSE(plan.refusal);
  EXPECT_THAT(kept(plan), ElementsAre(kA));
}

TEST_F(ProfilePlan, KeepsWhatFitsWhoeverMadeIt) {
  add_vgpu("nvidia-232", kA);
  const GpuPlan plan = first(on("[0]", "{T4-4Q: 2}"));
  EXPECT_THAT(steps(plan), ElementsAre("create T4-4Q " + ours("T4-4Q", 0) + " on 0000:05:00.0"));
  EXPECT_EQ(first_reason(plan), "p.yaml:5 asks for 2, 1 is there");
  EXPECT_THAT(kept(plan), ElementsAre(kA));
}

TEST_F(ProfilePlan, FillsTheGapInOurNumbers) {
  add_vgpu("nvidia-232", ours("T4-4Q", 1).c_str());
  EXPECT_THAT(steps(first(on("[0]", "{T4-4Q: 3}"))),
              ElementsAre("create T4-4Q " + ours("T4-4Q", 0) + " on 0000:05:00.0",
                          "create T4-4Q " + ours("T4-4Q", 2) + " on 0000:05:00.0"));
}

TEST_F(ProfilePlan, RemovesFirstWhatTheProfileDoesNotAskFor) {
  add_vgpu("nvidia-233", kB);
  add_vgpu("nvidia-233", kA);
  const GpuPlan plan = first(on("[0]", "{T4-4Q: 1}"));
  EXPECT_THAT(steps(plan), ElementsAre(std::string("remove T4-8Q ") + kA + " from 0000:05:00.0",
                                       std::string("remove T4-8Q ") + kB + " from 0000:05:00.0",
                                       "create T4-4Q " + ours("T4-4Q", 0) + " on 0000:05:00.0"));
  EXPECT_EQ(first_reason(plan), "p.yaml:4 does not ask for it; it was not made by Ferry");
}

// It goes all the same; whoever made it may miss it.
TEST_F(ProfilePlan, NamesWhatGoesAndIsNotOurs) {
  add_vgpu("nvidia-233", kA);
  add_vgpu("nvidia-233", ours("T4-8Q", 0).c_str());
  const GpuPlan plan = first(on("[0]", "{}"));
  EXPECT_THAT(plan.steps, testing::SizeIs(2));
  const std::string note = std::string("GPU 0 (0000:05:00.0): vGPU ") + kA +
                           " (T4-8Q) was not made by Ferry, and is removed: p.yaml:4 does not ask for it";
  EXPECT_THAT(plan.notes, ElementsAre(note));
  const GpuOutcome outcome = node.apply(on("[0]", "{}")).gpus.at(0);
  EXPECT_EQ(outcome.kind, GpuOutcome::Kind::changed);
  EXPECT_THAT(outcome.notes, ElementsAre(note));
}

TEST_F(ProfilePlan, SparesWhatIsNotOursWhereThatIsAskedFor) {
  add_vgpu("nvidia-233", kA);
  add_vgpu("nvidia-233", ours("T4-8Q", 0).c_str());
  VgpuSnapshot snapshot = node.snapshot();
  snapshot.spares_foreign = true;
  Profile whole = on("[0]", "{}");
  whole.items.at(0).whole = true;
  for (const Profile& desired : {on("[0]", "{}"), on("[0]", "{T4-4Q: 1}"), whole}) {
    const GpuPlan plan = plan_profile(desired, snapshot).gpus.at(0);
    EXPECT_EQ(
        refusal(plan, Errc::refused),
        std::string("GPU 0 (0000:05:00.0): 1 vGPU would have to be removed and was not made by Ferry: ") +
            kA + " (T4-8Q)");
    EXPECT_THAT(test::hint_of(plan.refusal), testing::HasSubstr("--foreign"));
  }
  // What fits stays, and what is ours goes.
  EXPECT_THAT(steps(plan_profile(on("[0]", "{T4-8Q: 1}"), snapshot).gpus.at(0)),
              ElementsAre("remove T4-8Q " + ours("T4-8Q", 0) + " from 0000:05:00.0"));
}

// Of too many that fit one of ours can go, so that nothing of anybody else's has to.
TEST_F(ProfilePlan, TakesOursBeforeThoseThatItSpares) {
  add_vgpu("nvidia-232", kA);
  add_vgpu("nvidia-232", ours("T4-4Q", 0).c_str());
  add_vgpu("nvidia-232", ours("T4-4Q", 1).c_str());
  VgpuSnapshot snapshot = node.snapshot();
  const Profile two = on("[0]", "{T4-4Q: 2}");
  EXPECT_THAT(kept(plan_profile(two, snapshot).gpus.at(0)), ElementsAre(ours("T4-4Q", 0), ours("T4-4Q", 1)));
  snapshot.spares_foreign = true;
  const GpuPlan sparing = plan_profile(two, snapshot).gpus.at(0);
  EXPECT_FALSE(sparing.refusal) << test::message_of(sparing.refusal);
  EXPECT_THAT(kept(sparing), ElementsAre(kA, ours("T4-4Q", 0)));
  EXPECT_THAT(steps(sparing), ElementsAre("remove T4-4Q " + ours("T4-4Q", 1) + " from 0000:05:00.0"));
  node.probe.hold(ours("T4-4Q", 0));
  node.probe.hold(ours("T4-4Q", 1));
  snapshot = node.snapshot();
  snapshot.spares_foreign = true;
  EXPECT_THAT(refusal(plan_profile(two, snapshot).gpus.at(0), Errc::refused),
              testing::HasSubstr(std::string("was not made by Ferry: ") + kA))
      << "ours in use stay before all";
}

TEST_F(ProfilePlan, AppliesNothingToWhatItSpares) {
  add_vgpu("nvidia-233", kA);
  VgpuHost host = node.host();
  host.spares_foreign = true;
  const auto outcome = test::must(apply_profile(host, on("[0]", "{T4-4Q: 1}")));
  EXPECT_EQ(outcome.gpus.at(0).kind, GpuOutcome::Kind::refused);
  EXPECT_THAT(node.mdev.devices_on(GpuNode::kFirst), ElementsAre(std::string("T4-8Q ") + kA));
}

TEST_F(ProfilePlan, SparesWhatComesMeanwhile) {
  add_vgpu("nvidia-233", ours("T4-8Q", 0).c_str());
  // The last question before the first write.
  node.probe.before_scan = [this](int look) {
    if (look == 2) add_vgpu("nvidia-233", kA);
  };
  VgpuHost host = node.host();
  host.spares_foreign = true;
  const auto outcome = test::must(apply_profile(host, on("[0]", "{T4-4Q: 1}")));
  EXPECT_EQ(outcome.gpus.at(0).kind, GpuOutcome::Kind::failed);
  EXPECT_THAT(test::message_of(outcome.gpus.at(0).error), testing::HasSubstr("not made by Ferry"));
  EXPECT_THAT(node.mdev.devices_on(GpuNode::kFirst),
              testing::UnorderedElementsAre(std::string("T4-8Q ") + kA, "T4-8Q " + ours("T4-8Q", 0)));
}

TEST_F(ProfilePlan, RemovesAllForAnEmptyMap) {
  add_vgpu("nvidia-233", kA);
  EXPECT_THAT(steps(first(on("[0]", "{}"))),
              ElementsAre(std::string("remove T4-8Q ") + kA + " from 0000:05:00.0"));
}

TEST_F(ProfilePlan, KeepsThoseInUseThenOursWhenThereAreTooMany) {
  add_vgpu("nvidia-232", kA);
  add_vgpu("nvidia-232", kB);
  add_vgpu("nvidia-232", ours("T4-4Q", 0).c_str());
  node.probe.hold(kB);
  EXPECT_THAT(kept(first(on("[0]", "{T4-4Q: 2}"))), ElementsAre(kB, ours("T4-4Q", 0)));
  EXPECT_THAT(kept(first(on("[0]", "{T4-4Q: 1}"))), ElementsAre(kB));
}

TEST_F(ProfilePlan, RefusesAGpuWhoseVgpuAVmHolds) {
  add_vgpu("nvidia-232", kA);
  add_vgpu("nvidia-232", kB);
  node.probe.hold(kB);
  const GpuPlan plan = first(on("[0]", "{T4-8Q: 2}"));
  EXPECT_EQ(refusal(plan, Errc::refused),
            std::string("GPU 0 (0000:05:00.0): vGPU ") + kB +
                " (T4-4Q) would have to be removed: VM render (pid 412) holds /dev/vfio/100");
  EXPECT_EQ(test::hint_of(plan.refusal), "stop what uses it, or ask for it in the profile");
}

TEST_F(ProfilePlan, LeavesAGpuThatNoItemIsFor) {
  add_vgpu("nvidia-232", kA);
  const GpuPlan plan = first(on("[1]", "{T4-8Q: 2}"));
  EXPECT_FALSE(plan.matched);
  EXPECT_THAT(plan.steps, IsEmpty());
  EXPECT_EQ(text(plan.found), "1 x T4-4Q");
}

TEST_F(ProfilePlan, TakesTheLastOfSeveralItems) {
  EXPECT_THAT(steps(first(profile("  - {devices: all, vgpu-devices: {T4-8Q: 2}}\n"
                                  "  - {devices: [0], vgpu-devices: {T4-16Q: 1}}\n"))),
              ElementsAre("create T4-16Q " + ours("T4-16Q", 0) + " on 0000:05:00.0"));
}

TEST_F(ProfilePlan, FiltersByBoard) {
  const VgpuPlan plan = plan_profile(
      profile("  - {device-filter: \"0x1EB810DE:0x12A210DE\", devices: all, vgpu-devices: {T4-16Q: 1}}\n"
              "  - {device-filter: \"0x1EB810DE:0x12A310DE\", devices: all, vgpu-devices: {T4-8Q: 1}}\n"),
      node.snapshot());
  EXPECT_THAT(
      steps(plan.gpus.at(1)),
      ElementsAre("create T4-16Q " + GpuNode::uuid(GpuNode::kSecond, "T4-16Q", 0) + " on 0000:06:00.0"));
  EXPECT_FALSE(plan.gpus.at(2).matched);
  EXPECT_THAT(plan.notes, ElementsAre("p.yaml:5: matches no GPU of this node"));
}

TEST_F(ProfilePlan, MixesSeriesOfOneSize) {
  EXPECT_THAT(steps(first(on("[0]", "{T4-8Q: 1, T4-8C: 1}"))),
              ElementsAre("create T4-8Q " + ours("T4-8Q", 0) + " on 0000:05:00.0",
                          "create T4-8C " + ours("T4-8C", 0) + " on 0000:05:00.0"));
}

TEST_F(ProfilePlan, RefusesTwoSizesOnOneGpu) {
  const GpuPlan plan = first(on("[0]", "{T4-8Q: 1, T4-4Q: 1}"));
  EXPECT_EQ(refusal(plan, Errc::invalid_config),
            "p.yaml:5: GPU 0 (0000:05:00.0): T4-8Q (8192 MiB) and T4-4Q (4096 MiB) cannot be on one GPU");
}

TEST_F(ProfilePlan, RefusesMoreThanFitBeforeAnythingIsRemoved) {
  EXPECT_EQ(refusal(first(on("[0]", "{T4-8Q: 3}")), Errc::invalid_config),
            "p.yaml:5: GPU 0 (0000:05:00.0): no room for 3 x T4-8Q: 2 fit");
  add_vgpu("nvidia-232", kA);
  EXPECT_EQ(refusal(first(on("[0]", "{T4-8Q: 3}")), Errc::invalid_config),
            "p.yaml:5: GPU 0 (0000:05:00.0): no room for 3 x T4-8Q: 2 fit");
  EXPECT_EQ(refusal(first(on("[0]", "{T4-4Q: 5}")), Errc::invalid_config),
            "p.yaml:5: GPU 0 (0000:05:00.0): no room for 5 x T4-4Q: 4 fit");
  EXPECT_EQ(refusal(first(on("[0]", "{T4-4Q: 3, T4-4C: 2}")), Errc::invalid_config),
            "p.yaml:5: GPU 0 (0000:05:00.0): no room for 2 x T4-4C: 4 fit, and 3 others are asked for");
}

TEST_F(ProfilePlan, UsesTheWholeRoomThatRemovalsGiveBack) {
  add_vgpu("nvidia-232", kA);
  add_vgpu("nvidia-319", kB);
  add_vgpu("nvidia-319", kC);
  const GpuPlan plan = first(on("[0]", "{T4-4Q: 4}"));
  EXPECT_FALSE(plan.refusal) << test::message_of(plan.refusal);
  EXPECT_EQ(plan.steps.size(), 5U);
}

TEST_F(ProfilePlan, TrustsTheDriverMoreThanItsDescription) {
  // With MIG on, time-sliced types are described and none is available.
  node.kernel.file("sys/devices/pci0000:00/0000:05:00.0/mdev_supported_types/nvidia-233/available_instances",
                   "0\n");
  EXPECT_EQ(refusal(first(on("[0]", "{T4-8Q: 1}")), Errc::invalid_config),
            "p.yaml:5: GPU 0 (0000:05:00.0): its driver offers no T4-8Q now, though it carries nothing");
}

TEST_F(ProfilePlan, SaysWhatOnlyTheDriverKnows) {
  add_vgpu("nvidia-232", kA);
  node.undescribe(GpuNode::kFirst, "nvidia-233");
  node.make_unknown(GpuNode::kFirst);
  const GpuPlan plan = first(on("[0]", "{T4-8Q: 3}"));
  EXPECT_FALSE(plan.refusal);
  EXPECT_EQ(plan.steps.size(), 4U);
  EXPECT_THAT(plan.notes, testing::Contains(
                              "GPU 0 (0000:05:00.0): whether 3 x T4-8Q fit shows once the others are gone"));
}

TEST_F(ProfilePlan, OrdersCreationsSoThatEachStillFits) {
  node.mdev.add_parent(GpuNode::kFirst, {{"nvidia-500", "X-1A", 1024, 4}, {"nvidia-501", "X-1Q", 1024, 2}});
  EXPECT_THAT(steps(first(on("[0]", "{X-1A: 2, X-1Q: 2}"))),
              ElementsAre("create X-1Q " + ours("X-1Q", 0) + " on 0000:05:00.0",
                          "create X-1Q " + ours("X-1Q", 1) + " on 0000:05:00.0",
                          "create X-1A " + ours("X-1A", 0) + " on 0000:05:00.0",
                          "create X-1A " + ours("X-1A", 1) + " on 0000:05:00.0"));
  EXPECT_EQ(refusal(first(on("[0]", "{X-1A: 3, X-1Q: 2}")), Errc::invalid_config),
            "p.yaml:5: GPU 0 (0000:05:00.0): no room for 3 x X-1A: 4 fit, and 2 others are asked for");
}

TEST_F(ProfilePlan, RefusesATypeThatTheGpuDoesNotHave) {
  const GpuPlan plan = first(on("[0]", "{T4-3Q: 1}"));
  EXPECT_EQ(refusal(plan, Errc::invalid_config),
            "p.yaml:5: GPU 0 (0000:05:00.0): offers no type T4-3Q; did you mean 'T4-1Q'?");
  EXPECT_EQ(test::hint_of(plan.refusal),
            "it offers T4-1B, T4-2B, T4-1A, T4-2A, T4-1Q, T4-2Q, T4-4Q, T4-8Q, T4-16Q, T4-4C, T4-8C, T4-16C");
}

TEST_F(ProfilePlan, RefusesAGpuThatHasNoVgpuTypes) {
  const GpuPlan plan = plan_profile(on("[2]", "{T4-4Q: 1}"), node.snapshot()).gpus.at(2);
  EXPECT_EQ(refusal(plan, Errc::unsupported),
            "p.yaml:5: GPU 2 (0000:07:00.0): no parent devices found: its driver nouveau "
            "offers no vGPU types and is no vGPU host driver");
}

TEST_F(ProfilePlan, AsksNothingOfAGpuThatShallHaveNone) {
  const GpuPlan plan = plan_profile(on("[2]", "{}"), node.snapshot()).gpus.at(2);
  EXPECT_TRUE(plan.matched);
  EXPECT_FALSE(plan.refusal);
  EXPECT_THAT(plan.steps, IsEmpty());
}

TEST_F(ProfilePlan, WritesNothingWhileAnEarlierWriteIsStuck) {
  VgpuSnapshot snapshot = node.snapshot();
  StuckWrite write;
  write.value = GpuNode::kFirst;
  snapshot.stuck = mdev::StuckGpus(std::vector{write});
  const VgpuPlan plan = plan_profile(on("[0, 1]", "{T4-4Q: 1}"), snapshot);
  EXPECT_EQ(refusal(plan.gpus.at(0), Errc::stuck),
            "GPU 0 (0000:05:00.0): an earlier write has not returned from the kernel");
  EXPECT_EQ(plan.gpus.at(1).steps.size(), 1U);
}

TEST_F(ProfilePlan, DoesNotActOnACountThatCouldNotBeRead) {
  VgpuSnapshot snapshot = node.snapshot();
  snapshot.inventory.gpus[0].parents[0].problem =
      Error{.code = Errc::malformed_host, .message = "read x: no", .hint = {}};
  EXPECT_EQ(refusal(plan_profile(on("[0]", "{}"), snapshot).gpus.at(0), Errc::malformed_host),
            "GPU 0 (0000:05:00.0): read x: no");
}

TEST_F(ProfilePlan, ReplacesWhatNoDriverHasTaken) {
  node.mdev.leave_driverless = true;
  add_vgpu("nvidia-232", ours("T4-4Q", 0).c_str());
  const GpuPlan plan = first(on("[0]", "{T4-4Q: 1}"));
  EXPECT_THAT(steps(plan), ElementsAre("remove T4-4Q " + ours("T4-4Q", 0) + " from 0000:05:00.0",
                                       "create T4-4Q " + ours("T4-4Q", 0) + " on 0000:05:00.0"));
  EXPECT_EQ(first_reason(plan), "no driver has taken it, so no VM could be given it");
}

TEST_F(ProfilePlan, NeverDrawsAUuidThatIsTakenElsewhere) {
  node.mdev.add_device(GpuNode::kSecond, "nvidia-232", ours("T4-4Q", 0));
  EXPECT_THAT(steps(first(on("[0]", "{T4-4Q: 1}"))),
              ElementsAre("create T4-4Q " + ours("T4-4Q", 1) + " on 0000:05:00.0"));
}

TEST_F(ProfilePlan, NotesWhatCouldNotBeAsked) {
  add_vgpu("nvidia-232", kA);
  node.probe.unknown = {"libvirt: no answer in 2 s"};
  EXPECT_THAT(plan_profile(on("[0]", "{}"), node.snapshot()).notes,
              ElementsAre("not all users are known: libvirt: no answer in 2 s"));
}

// Without the right to look into other processes, "no device user seen" says nothing.
TEST_F(ProfilePlan, KeepsTheNumbersThatARebootWouldGive) {
  node.make(on("[0]", "{T4-1Q: 8}"));
  node.make(on("[0]", "{T4-1Q: 4}"));
  std::vector<std::string> expected;
  for (unsigned number = 0; number < 4; ++number)
    expected.push_back(GpuNode::uuid(GpuNode::kFirst, "T4-1Q", number));
  std::vector<std::string> kept;
  const VgpuSnapshot snapshot = node.snapshot();
  for (const mdev::VgpuDevice& device : snapshot.inventory.gpus.at(0).devices) kept.push_back(device.id.text);
  EXPECT_THAT(kept, testing::UnorderedElementsAreArray(expected));
}

TEST_F(ProfilePlan, TakesNothingAwayWhenDeviceUsersMayBeUnseen) {
  add_vgpu("nvidia-232", kA);
  node.probe.blind = "2 processes cannot be looked into";
  EXPECT_EQ(refusal(first(on("[0]", "{}")), Errc::refused),
            "GPU 0 (0000:05:00.0): Ferry cannot find out whether its vGPUs are in use: 2 processes cannot be "
            "looked into");
  EXPECT_FALSE(first(on("[0]", "{T4-4Q: 2}")).refusal) << "nothing has to go for that";
  EXPECT_EQ(refusal(plan_removal({.gpus = {}, .foreign = true}, node.snapshot()).gpus.at(0), Errc::refused),
            "GPU 0 (0000:05:00.0): Ferry cannot find out whether its vGPUs are in use: 2 processes cannot be "
            "looked into");
}

TEST_F(ProfilePlan, FindsTypesByWhatTheirNamesMean) {
  node.mdev.add_parent(GpuNode::kSecond,
                       {{"nvidia-900", "NVIDIA RTX Pro 6000 Blackwell DC-2-48Q", 49152, 1}});
  EXPECT_THAT(
      steps(plan_profile(on("[1]", "{DC-2-48QGFX: 1}"), node.snapshot()).gpus.at(1)),
      ElementsAre("create DC-2-48Q " + GpuNode::uuid(GpuNode::kSecond, "DC-2-48Q", 0) + " on 0000:06:00.0"));
}

class RemovalPlan : public ProfilePlan {
 protected:
  GpuPlan remove_first(const Removal& removal) { return plan_removal(removal, node.snapshot()).gpus.at(0); }
};

TEST_F(RemovalPlan, TakesOursAndLeavesTheOthers) {
  add_vgpu("nvidia-232", kA);
  add_vgpu("nvidia-232", ours("T4-4Q", 0).c_str());
  const GpuPlan plan = remove_first({});
  EXPECT_THAT(steps(plan), ElementsAre("remove T4-4Q " + ours("T4-4Q", 0) + " from 0000:05:00.0"));
  EXPECT_THAT(kept(plan), ElementsAre(kA));
  EXPECT_THAT(plan.notes, ElementsAre(std::string("GPU 0 (0000:05:00.0): vGPU ") + kA +
                                      " (T4-4Q) was not made by Ferry: left; --foreign takes it too"));
}

TEST_F(RemovalPlan, TakesForeignOnesWhenAsked) {
  add_vgpu("nvidia-232", kA);
  EXPECT_THAT(steps(remove_first({.gpus = {}, .foreign = true})),
              ElementsAre(std::string("remove T4-4Q ") + kA + " from 0000:05:00.0"));
}

TEST_F(RemovalPlan, TouchesOnlyTheNamedGpus) {
  add_vgpu("nvidia-232", ours("T4-4Q", 0).c_str());
  EXPECT_THAT(remove_first({.gpus = {test::at(GpuNode::kSecond)}, .foreign = true}).steps, IsEmpty());
  EXPECT_THAT(remove_first({.gpus = {test::at(GpuNode::kFirst)}, .foreign = false}).steps,
              testing::SizeIs(1));
}

TEST_F(RemovalPlan, RefusesAGpuWhoseVgpuAVmHolds) {
  add_vgpu("nvidia-232", ours("T4-4Q", 0).c_str());
  add_vgpu("nvidia-232", ours("T4-4Q", 1).c_str());
  node.probe.hold(ours("T4-4Q", 1));
  EXPECT_EQ(refusal(remove_first({}), Errc::refused),
            "GPU 0 (0000:05:00.0): vGPU " + ours("T4-4Q", 1) +
                " (T4-4Q) would have to be removed: VM render (pid 412) holds /dev/vfio/100");
}

TEST_F(RemovalPlan, IsNotKeptByAVmOnAForeignOne) {
  add_vgpu("nvidia-232", ours("T4-4Q", 0).c_str());
  add_vgpu("nvidia-232", kA);
  node.probe.hold(kA);
  EXPECT_THAT(remove_first({}).steps, testing::SizeIs(1));
}

TEST_F(RemovalPlan, IsEmptyWhereNothingIs) {
  EXPECT_TRUE(plan_removal({}, node.snapshot()).writes_nothing());
}

class UndoPlan : public ProfilePlan {};

TEST_F(UndoPlan, IsTheRollbackFromAnyState) {
  add_vgpu("nvidia-232", kA);
  add_vgpu("nvidia-319", kB);
  const mdev::VgpuGpu before = node.snapshot().inventory.gpus[0];
  node.mdev.remove_device(GpuNode::kFirst, kA);
  add_vgpu("nvidia-232", kC);
  const auto undo = plan_undo(before, node.snapshot().inventory.gpus[0], {});
  ASSERT_EQ(undo.size(), 2U);
  EXPECT_EQ(undo[0].text(), std::string("remove T4-4Q ") + kC + " from 0000:05:00.0");
  EXPECT_EQ(undo[1].text(), std::string("create T4-4Q ") + kA + " on 0000:05:00.0");
  EXPECT_EQ(undo[1].type_id, "nvidia-232");
}

TEST_F(UndoPlan, MakesAgainWhatCameBackAsAnotherType) {
  add_vgpu("nvidia-232", kA);
  const mdev::VgpuGpu before = node.snapshot().inventory.gpus[0];
  node.mdev.remove_device(GpuNode::kFirst, kA);
  add_vgpu("nvidia-233", kA);
  const auto undo = plan_undo(before, node.snapshot().inventory.gpus[0], {});
  ASSERT_EQ(undo.size(), 2U);
  EXPECT_EQ(undo[0].text(), std::string("remove T4-8Q ") + kA + " from 0000:05:00.0");
  EXPECT_EQ(undo[1].text(), std::string("create T4-4Q ") + kA + " on 0000:05:00.0");
}

TEST_F(UndoPlan, LeavesWhatAVmHasTakenMeanwhile) {
  const mdev::VgpuGpu before = node.snapshot().inventory.gpus[0];
  add_vgpu("nvidia-232", kA);
  node.probe.hold(kA);
  const VgpuSnapshot snapshot = node.snapshot();
  EXPECT_THAT(plan_undo(before, snapshot.inventory.gpus[0], snapshot.use), IsEmpty());
}

TEST_F(UndoPlan, TakesNothingAwayWhenDeviceUsersMayBeUnseen) {
  const mdev::VgpuGpu before = node.snapshot().inventory.gpus.at(0);
  node.mdev.add_device(GpuNode::kFirst, "nvidia-232", kA);
  const mdev::VgpuGpu now = node.snapshot().inventory.gpus.at(0);
  vfio::UseReport blind;
  blind.blind = "1 process cannot be looked into";
  EXPECT_EQ(plan_undo(before, now, {}).size(), 1U);
  EXPECT_THAT(plan_undo(before, now, blind), IsEmpty());
}

TEST_F(UndoPlan, IsEmptyWhereNothingChanged) {
  add_vgpu("nvidia-232", kA);
  const mdev::VgpuGpu gpu = node.snapshot().inventory.gpus[0];
  EXPECT_THAT(plan_undo(gpu, gpu, {}), IsEmpty());
}

}  // namespace
}  // namespace ferry::vgpu
