// SPDX-License-Identifier: Apache-2.0
#include "dra/claims/claim_driver.h"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "tests/dra/claims_fixture.h"

namespace ferry::dra {
namespace {

using api::ClaimAction;
using test::must;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using namespace std::chrono_literals;

class ClaimDriverTest : public test::ClaimsFixture {
 protected:
  ClaimDriverTest() { start(); }

  /// hostd works on requests of this kind until the gate opens.
  void slow(ClaimAction action) {
    hostd->answer_by(
        [this, action](const api::ClaimRequest& request) -> std::optional<test::FakeHostd::Answer> {
          if (request.action == action) gate.wait();
          return std::nullopt;
        });
  }
  void refuse(Errc code, const std::string& message) {
    hostd->answer_by(
        [code, message](const api::ClaimRequest& request) -> std::optional<test::FakeHostd::Answer> {
          if (request.action == ClaimAction::unprepare) return std::nullopt;
          return fail(code, message, "wait");
        });
  }
};

TEST_F(ClaimDriverTest, PreparesAWholeGpuAndAVgpu) {
  const ClaimKey claim = allocate("render-a", {{"card", kWhole}, {"small/second", kVgpu}});
  const auto answers = prepare({claim});
  ASSERT_EQ(error_of(answers), "");
  EXPECT_EQ(answers[0].uid, claim.uid);
  EXPECT_THAT(*answers[0].devices,
              ElementsAre(DeviceAnswer{.request = "card",
                                       .pool = "node7/gpu-ferry",
                                       .device = kWhole,
                                       .cdi_ids = {api::claim_cdi_id(claim.uid, kWhole),
                                                   api::metadata_cdi_id(claim.uid, "card")}},
                          DeviceAnswer{.request = "small",
                                       .pool = "node7/gpu-ferry",
                                       .device = kVgpu,
                                       .cdi_ids = {api::claim_cdi_id(claim.uid, kVgpu),
                                                   api::metadata_cdi_id(claim.uid, "small")}}));

  const auto asked = hostd->requests();
  ASSERT_THAT(asked, SizeIs(1));
  EXPECT_EQ(asked[0].claim, claim.uid);
  EXPECT_EQ(asked[0].space, "studio");
  EXPECT_EQ(asked[0].name, "render-a");
  ASSERT_THAT(asked[0].devices, SizeIs(2));
  EXPECT_EQ(asked[0].devices[0].device, api::RequestedDevice{.gpu = test::at("0000:3b:00.0")});
  EXPECT_EQ(asked[0].devices[1].device,
            (api::RequestedDevice{.gpu = test::at("0000:5e:00.0"), .type = "1150"}));
  EXPECT_EQ(asked[0].devices[0].request, "card");
  EXPECT_EQ(asked[0].devices[0].pool, "node7/gpu-ferry");
  EXPECT_EQ(asked[0].devices[0].name, kWhole);
  EXPECT_EQ(asked[0].devices[1].request, "small/second");
  EXPECT_EQ(asked[0].devices[1].attributes.at("type"), api::Attribute("vgpu"));

  const Checkpoint kept = on_disk();
  EXPECT_EQ(kept, driver->checkpoint());
  ASSERT_THAT(kept.claims, SizeIs(1));
  EXPECT_EQ(kept.boot_id, "boot-1");
  EXPECT_EQ(kept.claims[0].phase, CheckpointPhase::prepared);
  EXPECT_EQ(kept.claims[0].devices.at(1).counters.name, "group-43");
  EXPECT_THAT(kept.claims[0].devices[0].device.taints, IsEmpty());
  EXPECT_EQ(changes, 2) << "the intent and the result";
  EXPECT_THAT(events.failures, IsEmpty());
  EXPECT_THAT(events.warnings, ElementsAre(HasSubstr("do without firstAvailable")));
}

constexpr const char* kImplicit = "deviceclass.resource.kubernetes.io/";

TEST_F(ClaimDriverTest, TellsHostdTheNamesOfExtendedResources) {
  reader.classes = {{"whole-l4", "nvidia.com/AD104GL_L4"}, {"small", ""}};
  const ClaimKey claim = allocate_for_resources("render-a", {{"whole-l4", kWhole}, {"small", kVgpu}});
  ASSERT_EQ(error_of(prepare({claim})), "");
  const auto asked = hostd->requests();
  ASSERT_THAT(asked, SizeIs(1));
  EXPECT_THAT(asked[0].devices.at(0).resources,
              ElementsAre("nvidia.com/AD104GL_L4", std::string(kImplicit) + "whole-l4"));
  EXPECT_THAT(asked[0].devices.at(1).resources, ElementsAre(std::string(kImplicit) + "small"));
  EXPECT_EQ(reader.class_reads, 2);

  const ClaimKey plain = allocate("render-b", {{"card", "vgpu-0000-5e-00-0-1150-1"}});
  ASSERT_EQ(error_of(prepare({plain})), "");
  EXPECT_THAT(hostd->requests().at(1).devices.at(0).resources, IsEmpty());
  EXPECT_EQ(reader.class_reads, 2) << "a claim that a pod names needs no class";
}

TEST_F(ClaimDriverTest, ReadsAClassOnceForAllDevicesOfARequest) {
  reader.classes = {{"whole-l4", "nvidia.com/AD104GL_L4"}};
  const ClaimKey claim =
      allocate_for_resources("render-a", {{"whole-l4", kWhole}, {"whole-l4", "whole-0000-5e-00-0"}});
  ASSERT_EQ(error_of(prepare({claim})), "");
  EXPECT_EQ(reader.class_reads, 1);
  for (const api::DeviceOfPod& device : hostd->requests().at(0).devices)
    EXPECT_THAT(device.resources, SizeIs(2));
  EXPECT_THAT(events.warnings, IsEmpty());
}

TEST_F(ClaimDriverTest, KeepsTheNamesOfExtendedResourcesWhileAClaimIsHeld) {
  reader.classes = {{"whole-l4", "nvidia.com/AD104GL_L4"}};
  const ClaimKey claim = allocate_for_resources("render-a", {{"whole-l4", kWhole}});
  ASSERT_EQ(error_of(prepare({claim})), "");
  const auto before = hostd->requests().at(0).devices;
  reader.classes["whole-l4"] = "nvidia.com/RENAMED";
  ASSERT_EQ(error_of(prepare({claim})), "");
  start();
  ASSERT_EQ(error_of(prepare({claim})), "");
  reader.classes.clear();
  reader.error = Error{.code = Errc::unreachable, .message = "no answer"};
  ASSERT_EQ(error_of(prepare({claim})), "") << "without the API server";
  ASSERT_THAT(hostd->requests(), SizeIs(4));
  for (const api::ClaimRequest& request : hostd->requests()) EXPECT_EQ(request.devices, before);
  EXPECT_EQ(reader.class_reads, 1);
}

TEST_F(ClaimDriverTest, AClaimForExtendedResourcesNeedsItsClass) {
  const ClaimKey claim = allocate_for_resources("render-a", {{"whole-l4", kWhole}});
  EXPECT_EQ(error_of(prepare({claim})), "claim studio/render-a: get DeviceClass whole-l4: there is none");
  reader.class_error = Error{.code = Errc::unreachable, .message = "no answer"};
  EXPECT_EQ(error_of(prepare({claim})), "claim studio/render-a: no answer");
  reader.class_error.reset();
  reader.classes = {{"whole-l4", "a=b"}};
  EXPECT_THAT(error_of(prepare({claim})), HasSubstr("its extendedResourceName 'a=b' cannot be a variable's"));
  EXPECT_THAT(hostd->requests(), IsEmpty());
  EXPECT_THAT(on_disk().claims, IsEmpty());
  EXPECT_THAT(events.failures, SizeIs(3));
  reader.classes = {{"whole-l4", "nvidia.com/AD104GL_L4"}};
  EXPECT_EQ(error_of(prepare({claim})), "");
}

TEST_F(ClaimDriverTest, AsksForThePlacementOfAGpuWithMixedSizes) {
  const ClaimKey claim = allocate("render-a", {{"card", "vgpu-0000-af-00-0-592-4"}});
  ASSERT_EQ(error_of(prepare({claim})), "");
  const auto asked = hostd->requests().at(0).devices;
  ASSERT_THAT(asked, SizeIs(1));
  EXPECT_EQ(asked[0].device,
            (api::RequestedDevice{.gpu = test::at("0000:af:00.0"), .type = "nvidia-592", .placement = 4U}));
  EXPECT_EQ(on_disk().claims.at(0).devices.at(0).placement, 4U);
}

TEST_F(ClaimDriverTest, ARepeatGivesTheSameAnswerAndWritesNothing) {
  const ClaimKey claim = allocate("render-a", {{"card", kWhole}});
  const auto first = prepare({claim});
  ASSERT_EQ(error_of(first), "");
  const auto written = [&] {
    std::vector<std::filesystem::file_time_type> times;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root.path()))
      times.push_back(entry.last_write_time());
    return times;
  };
  const auto before = written();
  for (int i = 0; i < 3; ++i) {
    const auto again = prepare({claim});
    ASSERT_EQ(error_of(again), "");
    EXPECT_EQ(*again[0].devices, *first[0].devices);
  }
  EXPECT_EQ(written(), before);
  EXPECT_THAT(hostd->claims(), ElementsAre(testing::Pair(claim.uid, 1)));
  EXPECT_EQ(changes, 2);
}

TEST_F(ClaimDriverTest, ARepeatGetsAVgpuThatHostdHasMadeAgain) {
  const ClaimKey claim = allocate("render-a", {{"card", kVgpu}});
  ASSERT_EQ(error_of(prepare({claim})), "");
  refuse(Errc::refused, "none of type 1150 fits now");
  EXPECT_THAT(error_of(prepare({claim})), HasSubstr("none of type 1150 fits now"));
  EXPECT_EQ(on_disk().claims.at(0).phase, CheckpointPhase::preparing) << "hostd may have undone a device";
  EXPECT_THAT(error_of(prepare({claim})), HasSubstr("none of type 1150 fits now"));
  EXPECT_EQ(on_disk().claims.at(0).phase, CheckpointPhase::preparing);
  EXPECT_EQ(hostd->count(ClaimAction::unprepare), 0U) << "a pod may have a device of the claim";
  hostd->answer_by({});
  EXPECT_EQ(error_of(prepare({claim})), "");
  EXPECT_EQ(on_disk().claims.at(0).phase, CheckpointPhase::prepared);
  reader.error = Error{.code = Errc::unreachable, .message = "no answer"};
  const auto asked = hostd->count(ClaimAction::prepare);
  EXPECT_EQ(error_of(prepare({claim})), "");
  EXPECT_EQ(hostd->count(ClaimAction::prepare), asked + 1) << "while the API server is away, too";
}

TEST_F(ClaimDriverTest, ARepeatNeedsNoHostd) {
  const ClaimKey claim = allocate("render-a", {{"card", kWhole}});
  const auto first = prepare({claim});
  ASSERT_EQ(error_of(first), "");
  hostd.reset();
  const auto again = prepare({claim});
  ASSERT_EQ(error_of(again), "");
  EXPECT_EQ(*again[0].devices, *first[0].devices);
}

TEST_F(ClaimDriverTest, ARefusedRepeatNeedsHostd) {
  const ClaimKey claim = allocate("render-a", {{"card", kWhole}});
  ASSERT_EQ(error_of(prepare({claim})), "");
  refuse(Errc::refused, "GPU 0000:3b:00.0 is in use by qemu (4711)");
  EXPECT_THAT(error_of(prepare({claim})), HasSubstr("in use by qemu"));
  hostd.reset();
  EXPECT_THAT(error_of(prepare({claim})), HasSubstr("connect to hostd")) << "its devices may be undone";
  start_hostd();
  EXPECT_EQ(error_of(prepare({claim})), "");
  EXPECT_EQ(on_disk().claims.at(0).phase, CheckpointPhase::prepared);
}

TEST_F(ClaimDriverTest, ARepeatNeedsNoAnswerOfHostd) {
  const ClaimKey claim = allocate("render-a", {{"card", kWhole}});
  const auto first = prepare({claim});
  ASSERT_EQ(error_of(first), "");
  const auto expect_the_same = [&] {
    const auto again = prepare({claim});
    ASSERT_EQ(error_of(again), "");
    EXPECT_EQ(*again[0].devices, *first[0].devices);
    EXPECT_EQ(on_disk().claims.at(0).phase, CheckpointPhase::prepared);
  };
  hostd->send_text("");  // it ends
  expect_the_same();
  hostd->send_text(std::nullopt);
  refuse(Errc::unreachable, "another ferry is changing this host");
  expect_the_same();
  settings.hostd_limit = 50ms;
  start();
  slow(ClaimAction::prepare);
  expect_the_same();
  gate.open();
  EXPECT_EQ(hostd->count(ClaimAction::unprepare), 0U);
  EXPECT_THAT(events.failures, IsEmpty());
}

TEST_F(ClaimDriverTest, ARepeatNeedsNoApiServer) {
  const ClaimKey claim = allocate("render-a", {{"card", kWhole}});
  ASSERT_EQ(error_of(prepare({claim})), "");
  reader.error = Error{.code = Errc::unreachable, .message = "claim studio/render-a: no answer"};
  EXPECT_EQ(error_of(prepare({claim})), "");
  reader.error = Error{.code = Errc::refused, .message = "claim studio/render-a: forbidden"};
  EXPECT_EQ(error_of(prepare({claim})), "");
  reader.error = Error{.code = Errc::not_found, .message = "claim studio/render-a: there is no such claim"};
  EXPECT_EQ(error_of(prepare({claim})), "claim studio/render-a: there is no such claim");
  reader.error = Error{.code = Errc::unreachable, .message = "claim studio/render-a: no answer"};
  const ClaimKey other = allocate("render-b", {{"card", kVgpu}});
  EXPECT_EQ(error_of(prepare({other})), "claim studio/render-b: claim studio/render-a: no answer")
      << "a claim that is not prepared needs it";
}

TEST_F(ClaimDriverTest, UnpreparesWithoutTheApiServer) {
  const ClaimKey claim = allocate("render-a", {{"card", kWhole}});
  ASSERT_EQ(error_of(prepare({claim})), "");
  reader.error = Error{.code = Errc::unreachable, .message = "no answer"};
  const int reads = reader.reads;
  EXPECT_EQ(error_of(unprepare({claim})), "");
  EXPECT_EQ(reader.reads, reads);
  EXPECT_THAT(hostd->claims(), IsEmpty());
  EXPECT_THAT(on_disk().claims, IsEmpty());
  EXPECT_EQ(error_of(unprepare({claim})), "") << "an unknown claim";
}

TEST_F(ClaimDriverTest, UnpreparesAClaimThatOnlyHostdKnows) {
  const ClaimKey claim = allocate("render-a", {{"card", kWhole}});
  ASSERT_EQ(error_of(prepare({claim})), "");
  std::filesystem::remove(root.path() / api::kCheckpointFile);  // as the hint of an unreadable one says
  start();
  ASSERT_THAT(driver->checkpoint().claims, IsEmpty());
  hostd->answer_by([](const api::ClaimRequest&) -> std::optional<test::FakeHostd::Answer> {
    return fail(Errc::refused, "GPU 0000:3b:00.0 is in use by qemu (4711)");
  });
  EXPECT_THAT(error_of(unprepare({claim})), HasSubstr("in use by qemu"));
  hostd->answer_by({});
  EXPECT_EQ(error_of(unprepare({claim})), "");
  EXPECT_THAT(hostd->claims(), IsEmpty()) << "the GPU stays on vfio";
}

TEST_F(ClaimDriverTest, AnUnknownClaimEndsWithoutAnAnswerOfHostd) {
  const ClaimKey claim = allocate("render-a", {{"card", kWhole}});
  hostd->send_text("");
  EXPECT_EQ(error_of(unprepare({claim})), "");
  hostd->send_text(std::nullopt);
  hostd->answer_by([](const api::ClaimRequest&) -> std::optional<test::FakeHostd::Answer> {
    return fail(Errc::unreachable, "another ferry is changing this host");
  });
  EXPECT_THAT(events.failures, IsEmpty());
  EXPECT_THAT(error_of(unprepare({claim})), HasSubstr("another ferry is changing this host"))
      << "hostd's record has the claim";
  EXPECT_EQ(hostd->count(ClaimAction::unprepare), 2U);
  hostd.reset();
  const auto folder = std::filesystem::path(api::kClaimSocket).parent_path();
  std::filesystem::remove_all(root.path() / folder);
  root.file(folder, "no folder");
  EXPECT_THAT(error_of(unprepare({claim})), HasSubstr("connect to hostd"))
      << "an error of this process does not show that hostd is away";
}

TEST_F(ClaimDriverTest, ClaimsOfARequestAreIndependent) {
  const ClaimKey good = allocate("render-a", {{"card", kWhole}});
  const ClaimKey bad = allocate("render-b", {{"card", "whole-0000-99-00-0"}});
  const ClaimKey missing = key("render-c", "c-uid");
  const auto answers = prepare({bad, good, missing});
  ASSERT_THAT(answers, SizeIs(3));
  EXPECT_EQ(answers[0].uid, bad.uid);
  ASSERT_FALSE(answers[0].devices);
  EXPECT_EQ(answers[0].devices.error().message,
            "claim studio/render-b: whole-0000-99-00-0: this node has no such device now");
  EXPECT_TRUE(answers[1].devices);
  ASSERT_FALSE(answers[2].devices);
  EXPECT_EQ(answers[2].devices.error().message, "claim studio/render-c: there is no such ResourceClaim");
  EXPECT_THAT(on_disk().claims, SizeIs(1));
  EXPECT_THAT(events.failures, SizeIs(2));
  prepare({bad});
  EXPECT_THAT(events.failures, SizeIs(3)) << "events of the API server expire, so a repeat counts";
}

TEST_F(ClaimDriverTest, GivesADeviceToOneClaim) {
  const ClaimKey first = allocate("render-a", {{"card", kWhole}});
  const ClaimKey second = allocate("render-b", {{"card", kWhole}});
  const ClaimKey part = allocate("render-c", {{"card", "vgpu-0000-3b-00-0-1150-0"}});
  const auto answers = prepare({first, second, part});
  EXPECT_TRUE(answers.at(0).devices);
  ASSERT_FALSE(answers.at(1).devices);
  EXPECT_THAT(answers[1].devices.error().message, HasSubstr("still has it"));
  ASSERT_FALSE(answers.at(2).devices);
  EXPECT_THAT(answers[2].devices.error().message, HasSubstr("of the same IOMMU group"));
  EXPECT_THAT(hostd->requests(), SizeIs(1));
  ASSERT_EQ(error_of(unprepare({first})), "");
  EXPECT_EQ(error_of(prepare({second})), "");
}

TEST_F(ClaimDriverTest, WhileHostdIsAwayNothingIsRecorded) {
  hostd.reset();
  const ClaimKey claim = allocate("render-a", {{"card", kWhole}});
  const std::string error = error_of(prepare({claim}));
  EXPECT_THAT(error, HasSubstr("claim studio/render-a: connect to hostd at /run/ferry/claims/hostd.sock"));
  EXPECT_THAT(error, HasSubstr("does `ferry hostd` run on this node"));
  EXPECT_THAT(on_disk().claims, IsEmpty());
  EXPECT_EQ(error_of(unprepare({claim})), "") << "there is nothing to undo";
  start_hostd();
  EXPECT_EQ(error_of(prepare({claim})), "");
}

TEST_F(ClaimDriverTest, UnprepareWaitsForHostd) {
  const ClaimKey claim = allocate("render-a", {{"card", kWhole}});
  ASSERT_EQ(error_of(prepare({claim})), "");
  hostd.reset();
  EXPECT_THAT(error_of(unprepare({claim})), HasSubstr("connect to hostd"));
  start_hostd();
  EXPECT_EQ(error_of(unprepare({claim})), "");
  EXPECT_THAT(on_disk().claims, IsEmpty());
}

TEST_F(ClaimDriverTest, TheKubeletGetsItsAnswerInTime) {
  EXPECT_LE(settings.answer_within, 40s) << "the kubelet ends a call after 45 s";
}

TEST_F(ClaimDriverTest, ASlowHostdIsWaitedForInTheBackground) {
  settings.answer_within = 50ms;
  start();
  slow(ClaimAction::prepare);
  const ClaimKey claim = allocate("render-a", {{"card", kWhole}});
  const ClaimKey quick = allocate("render-b", {{"card", "whole-0000-99-00-0"}});
  const auto answers = prepare({claim, quick});
  ASSERT_THAT(answers, SizeIs(2));
  ASSERT_FALSE(answers[0].devices);
  EXPECT_EQ(answers[0].devices.error().text(),
            "claim studio/render-a: its devices are still being prepared; the work goes on, and the kubelet "
            "asks again");
  EXPECT_THAT(answers[1].devices.error().message, HasSubstr("no such device"));
  EXPECT_EQ(on_disk().claims.at(0).phase, CheckpointPhase::preparing);
  EXPECT_THAT(error_of(prepare({claim})), HasSubstr("still being prepared"))
      << "the kubelet asks again too early";
  gate.open();
  EXPECT_TRUE(
      run_until([&] { return driver->checkpoint().claims.at(0).phase == CheckpointPhase::prepared; }));
  EXPECT_THAT(hostd->requests(), SizeIs(1)) << "the repeats ask for no second time";
  settings.answer_within = 30s;
  start();
  EXPECT_EQ(error_of(prepare({claim})), "");
}

TEST_F(ClaimDriverTest, ASlowUndoIsWaitedForInTheBackground) {
  const ClaimKey claim = allocate("render-a", {{"card", kWhole}});
  ASSERT_EQ(error_of(prepare({claim})), "");
  settings.answer_within = 50ms;
  start();
  slow(ClaimAction::unprepare);
  EXPECT_THAT(error_of(unprepare({claim})), HasSubstr("still being undone"));
  EXPECT_EQ(error_of(prepare({claim})),
            "claim studio/render-a: it is being undone; the kubelet asks again; the claim waits until then");
  gate.open();
  EXPECT_TRUE(run_until([&] { return driver->checkpoint().claims.empty(); }));
  EXPECT_EQ(hostd->count(ClaimAction::unprepare), 1U);
  settings.answer_within = 30s;
  start();
  EXPECT_EQ(error_of(unprepare({claim})), "");
}

TEST_F(ClaimDriverTest, UnprepareEndsAPreparationInProgress) {
  slow(ClaimAction::prepare);
  const ClaimKey claim = allocate("render-a", {{"card", kWhole}});
  const auto asked = ask({claim});
  ASSERT_TRUE(run_until([&] { return hostd->count(ClaimAction::prepare) == 1; }));
  const auto undone = ask_to_undo({claim});
  EXPECT_THAT(error_of(wait_for(asked)), HasSubstr("it is being undone"));
  gate.open();
  EXPECT_EQ(error_of(wait_for(undone)), "");
  EXPECT_THAT(on_disk().claims, IsEmpty());
}

TEST_F(ClaimDriverTest, ARefusalLeavesNothingBehind) {
  refuse(Errc::refused, "GPU 0000:3b:00.0 is in use by qemu (4711)");
  const ClaimKey claim = allocate("render-a", {{"card", kWhole}});
  EXPECT_EQ(error_of(prepare({claim})),
            "claim studio/render-a: GPU 0000:3b:00.0 is in use by qemu (4711); wait");
  EXPECT_THAT(on_disk().claims, IsEmpty());
  EXPECT_EQ(hostd->count(ClaimAction::unprepare), 1U) << "hostd undoes what it may have of it";
  EXPECT_THAT(events.failures, SizeIs(1));
  hostd->answer_by({});
  EXPECT_EQ(error_of(prepare({claim})), "");
}

TEST_F(ClaimDriverTest, ARefusedClaimThatCannotBeUndoneStaysRecorded) {
  hostd->answer_by([](const api::ClaimRequest&) -> std::optional<test::FakeHostd::Answer> {
    return fail(Errc::stuck, "a write to GPU 0000:3b:00.0 hangs");
  });
  const ClaimKey claim = allocate("render-a", {{"card", kWhole}});
  EXPECT_THAT(error_of(prepare({claim})), HasSubstr("hangs"));
  EXPECT_EQ(on_disk().claims.at(0).phase, CheckpointPhase::preparing);
  EXPECT_THAT(error_of(unprepare({claim})), HasSubstr("hangs"));
  EXPECT_EQ(on_disk().claims.at(0).phase, CheckpointPhase::unpreparing);
  hostd->answer_by({});
  EXPECT_EQ(error_of(unprepare({claim})), "");
  EXPECT_THAT(on_disk().claims, IsEmpty());
}

TEST_F(ClaimDriverTest, AHostdWithoutTheLockHasNothingToUndo) {
  refuse(Errc::unreachable, "another ferry is changing this host");
  const ClaimKey claim = allocate("render-a", {{"card", kWhole}});
  EXPECT_THAT(error_of(prepare({claim})), HasSubstr("another ferry is changing this host"));
  EXPECT_THAT(hostd->requests(), SizeIs(1));
  hostd->answer_by({});
  EXPECT_EQ(error_of(prepare({claim})), "");
}

TEST_F(ClaimDriverTest, AnUndoThatFailedIsFinishedBeforeAClaimIsPreparedAgain) {
  const ClaimKey claim = allocate("render-a", {{"card", kWhole}});
  ASSERT_EQ(error_of(prepare({claim})), "");
  hostd.reset();
  // A process that was killed after its record leaves the same.
  Checkpoint half_undone = on_disk();
  half_undone.claims.at(0).phase = CheckpointPhase::unpreparing;
  root.file(api::kCheckpointFile, checkpoint_text(half_undone));
  start_hostd();
  start();
  // The kubelet has lost its records, and another pod has the claim.
  EXPECT_EQ(error_of(prepare({claim})),
            "claim studio/render-a: it is being undone; the kubelet asks again; the claim waits until then");
  EXPECT_TRUE(run_until([&] { return driver->checkpoint().claims.empty(); }));
  EXPECT_EQ(error_of(prepare({claim})), "");
  EXPECT_EQ(hostd->count(ClaimAction::unprepare), 1U);
  EXPECT_EQ(hostd->count(ClaimAction::prepare), 1U);
}

TEST_F(ClaimDriverTest, AHostdThatEndsIsAskedAgain) {
  hostd->send_text("");
  const ClaimKey claim = allocate("render-a", {{"card", kWhole}});
  EXPECT_THAT(error_of(prepare({claim})), HasSubstr("hostd has closed the connection without an answer"));
  EXPECT_EQ(on_disk().claims.at(0).phase, CheckpointPhase::preparing);
  hostd->send_text(std::nullopt);
  EXPECT_EQ(error_of(prepare({claim})), "");
  EXPECT_THAT(hostd->claims(), ElementsAre(testing::Pair(claim.uid, 1)));
}

TEST_F(ClaimDriverTest, AHostdThatNeverAnswersIsGivenUp) {
  settings.hostd_limit = 50ms;
  start();
  slow(ClaimAction::prepare);
  const ClaimKey claim = allocate("render-a", {{"card", kWhole}});
  EXPECT_THAT(error_of(prepare({claim})), HasSubstr("hostd has not answered"));
  EXPECT_EQ(on_disk().claims.at(0).phase, CheckpointPhase::preparing);
  gate.open();
  settings.hostd_limit = 30s;
  start();
  EXPECT_EQ(error_of(prepare({claim})), "");
}

TEST_F(ClaimDriverTest, AnAnswerOfAnotherFormIsAnError) {
  const ClaimKey claim = allocate("render-a", {{"card", kWhole}});
  for (const char* const text : {"no JSON", "{}", R"({"version": 2, "devices": []})"}) {
    hostd->send_text(text);
    EXPECT_NE(error_of(prepare({claim})), "") << text;
  }
  hostd->send_text(std::nullopt);
  EXPECT_EQ(error_of(prepare({claim})), "");
}

TEST_F(ClaimDriverTest, AClaimThatWasMadeAgainWaitsForTheFormerOne) {
  const ClaimKey former = allocate("render-a", {{"card", kWhole}}, "first-uid");
  ASSERT_EQ(error_of(prepare({former})), "");
  const ClaimKey present = allocate("render-a", {{"card", kWhole}}, "second-uid");
  EXPECT_THAT(error_of(prepare({present})), HasSubstr("still has it"));
  EXPECT_THAT(error_of(prepare({former})), HasSubstr("its UID is second-uid"));
  EXPECT_EQ(error_of(unprepare({former})), "");
  EXPECT_EQ(error_of(prepare({present})), "");
}

TEST_F(ClaimDriverTest, ANewAllocationWaitsUntilTheFormerIsUndone) {
  const ClaimKey claim = allocate("render-a", {{"card", kWhole}});
  ASSERT_EQ(error_of(prepare({claim})), "");
  allocate("render-a", {{"card", kVgpu}});
  hostd->answer_by([](const api::ClaimRequest&) -> std::optional<test::FakeHostd::Answer> {
    return fail(Errc::refused, "GPU 0000:3b:00.0 is in use by qemu (4711)");
  });
  EXPECT_THAT(error_of(prepare({claim})), HasSubstr("still has the devices of a former allocation"));
  EXPECT_TRUE(run_until([&] { return events.failures.size() == 2; }));
  EXPECT_THAT(events.failures.back(), HasSubstr("in use by qemu"));
  EXPECT_EQ(on_disk().claims.at(0).devices.at(0).device.name, kWhole) << "a VM has it still";
  hostd->answer_by({});
  EXPECT_THAT(error_of(prepare({claim})), HasSubstr("it is being undone"));
  EXPECT_TRUE(run_until([&] { return driver->checkpoint().claims.empty(); }))
      << "the kubelet has lost its records, and does not ask for the undo";
  EXPECT_EQ(error_of(prepare({claim})), "");
  EXPECT_EQ(on_disk().claims.at(0).devices.at(0).device.name, kVgpu);
}

TEST_F(ClaimDriverTest, NamesThatAreNoneAreNotAskedFor) {
  for (const ClaimKey& bad :
       {ClaimKey{.uid = "../x", .space = "a", .name = "b"}, ClaimKey{.uid = "", .space = "a", .name = "b"},
        ClaimKey{.uid = "u", .space = "a/../b", .name = "b"}}) {
    EXPECT_NE(error_of(prepare({bad})), "");
    EXPECT_EQ(error_of(unprepare({bad})), "");
  }
  EXPECT_EQ(reader.reads, 0);
  EXPECT_THAT(hostd->requests(), IsEmpty());
  EXPECT_THAT(prepare({}), IsEmpty());
}

TEST_F(ClaimDriverTest, AnApiServerThatNeverAnswersIsAskedAgain) {
  settings.answer_within = 50ms;
  start();
  const ClaimKey claim = allocate("render-a", {{"card", kWhole}});
  reader.silent = true;
  EXPECT_THAT(error_of(prepare({claim})), HasSubstr("still being prepared"));
  ask({claim});
  ASSERT_THAT(reader.waiting, SizeIs(2)) << "it is read again";
  reader.waiting[0]();
  EXPECT_THAT(driver->checkpoint().claims, IsEmpty()) << "the late answer starts nothing";
  reader.waiting[1]();
  EXPECT_TRUE(run_until([&] {
    const CheckpointClaim* const record = driver->checkpoint().find(claim.uid);
    return record != nullptr && record->phase == CheckpointPhase::prepared;
  }));
  EXPECT_THAT(hostd->requests(), SizeIs(1));
}

TEST_F(ClaimDriverTest, AFailedWriteIsAnErrorOfTheClaim) {
  const auto folder = root.path() / "run/ferry/dra";
  std::filesystem::remove_all(folder);
  root.file("run/ferry/dra", "no folder");
  const ClaimKey claim = allocate("render-a", {{"card", kWhole}});
  EXPECT_THAT(error_of(prepare({claim})), HasSubstr("Not a directory"));
  EXPECT_THAT(hostd->requests(), IsEmpty()) << "without a record nothing begins";
  std::filesystem::remove(folder);
  EXPECT_EQ(error_of(prepare({claim})), "");
}

TEST_F(ClaimDriverTest, UndoesClaimsThatAreNoMore) {
  const ClaimKey kept = allocate("render-a", {{"card", kWhole}});
  const ClaimKey gone = allocate("render-b", {{"card", kVgpu}});
  ASSERT_THAT(prepare({kept, gone}), SizeIs(2));
  driver->unprepare_all_but({kept.uid});
  run_for(20ms);
  EXPECT_THAT(on_disk().claims, SizeIs(2)) << "the API server still has it: the list is old";
  reader.objects.erase("studio/render-b");
  reader.error = Error{.code = Errc::unreachable, .message = "no answer"};
  driver->unprepare_all_but({kept.uid});
  run_for(20ms);
  EXPECT_THAT(on_disk().claims, SizeIs(2));
  reader.error.reset();
  driver->unprepare_all_but({kept.uid});
  EXPECT_TRUE(run_until([&] { return driver->checkpoint().claims.size() == 1; }));
  EXPECT_THAT(hostd->claims(), ElementsAre(testing::Pair(kept.uid, 1)));
}

TEST_F(ClaimDriverTest, UndoesClaimsWhoseAllocationHasEnded) {
  const ClaimKey without = allocate("render-a", {{"card", kWhole}});
  const ClaimKey moved = allocate("render-b", {{"card", kVgpu}});
  ASSERT_THAT(prepare({without, moved}), SizeIs(2));
  reader.objects["studio/render-a"]["status"].erase("allocation");
  auto& results = reader.objects["studio/render-b"]["status"]["allocation"]["devices"]["results"];
  results[0]["pool"] = pool_name("node8");
  driver->unprepare_all_but({});
  EXPECT_TRUE(run_until([&] { return driver->checkpoint().claims.empty(); })) << "their devices stay bound";
  EXPECT_THAT(hostd->claims(), IsEmpty());
}

TEST_F(ClaimDriverTest, FinishesAnUndoThatNoKubeletAsksFor) {
  const ClaimKey claim = allocate("render-a", {{"card", kWhole}});
  ASSERT_EQ(error_of(prepare({claim})), "");
  hostd->answer_by([](const api::ClaimRequest&) -> std::optional<test::FakeHostd::Answer> {
    return fail(Errc::refused, "GPU 0000:3b:00.0 is in use by qemu (4711)");
  });
  EXPECT_THAT(error_of(unprepare({claim})), HasSubstr("in use by qemu"));
  hostd->answer_by({});
  reader.error = Error{.code = Errc::unreachable, .message = "no answer"};
  driver->unprepare_all_but({});
  EXPECT_TRUE(run_until([&] { return driver->checkpoint().claims.empty(); })) << "the claim exists still";
}

TEST_F(ClaimDriverTest, WithoutAModelOfTheNodeAClaimWaits) {
  node.error = Error{.code = Errc::unreachable, .message = "the GPUs are not known yet"};
  const ClaimKey claim = allocate("render-a", {{"card", kWhole}});
  EXPECT_THAT(error_of(prepare({claim})), HasSubstr("the GPUs are not known yet"));
  node.error.reset();
  EXPECT_EQ(error_of(prepare({claim})), "");
}

// A request of the kubelet may name as many claims as fit into its message.

class ManyClaims : public ClaimDriverTest {
 protected:
  static constexpr std::size_t kAtATime = 16;

  static std::vector<ClaimKey> many(std::size_t count) {
    std::vector<ClaimKey> out;
    for (std::size_t i = 0; i < count; ++i) {
      const std::string name = "render-" + std::to_string(i);
      out.push_back(key(name, name + "-uid"));
    }
    return out;
  }
};

TEST_F(ManyClaims, AreReadSixteenAtATime) {
  reader.silent = true;
  const auto answers = ask(many(5000));
  std::size_t most = 0;
  while (!reader.waiting.empty()) {
    most = std::max(most, reader.waiting.size());
    const auto first = std::move(reader.waiting.front());
    reader.waiting.erase(reader.waiting.begin());
    first();
  }
  EXPECT_EQ(most, kAtATime);
  ASSERT_TRUE(answers->has_value());
  EXPECT_THAT(**answers, SizeIs(5000));
  for (const ClaimAnswer& answer : **answers) {
    ASSERT_FALSE(answer.devices);
    EXPECT_EQ(answer.devices.error().code, Errc::not_found) << answer.uid;
  }
}

TEST_F(ManyClaims, AreAnsweredAlsoIfEachReadEndsAtOnce) {
  EXPECT_THAT(prepare(many(5000)), SizeIs(5000));
  EXPECT_EQ(reader.reads, 5000);
}

TEST_F(ManyClaims, AreUndoneSixteenAtATime) {
  slow(ClaimAction::unprepare);
  const auto answers = ask_to_undo(many(200));
  EXPECT_TRUE(run_until([&] { return hostd->count(ClaimAction::unprepare) >= kAtATime; }));
  run_for(20ms);
  EXPECT_EQ(hostd->count(ClaimAction::unprepare), kAtATime);
  gate.open();
  for (const ClaimAnswer& answer : wait_for(answers)) EXPECT_TRUE(answer.devices) << answer.uid;
  EXPECT_EQ(hostd->count(ClaimAction::unprepare), 200U);
}

TEST_F(ManyClaims, AClaimWhoseWorkGoesOnDoesNotQueue) {
  reader.silent = true;
  const auto first = ask(many(kAtATime + 1));
  const auto again = ask_to_undo({many(1)});
  EXPECT_EQ(wait_for(again).size(), 1U) << "its prepare is given up";
  EXPECT_EQ(reader.reads, static_cast<int>(kAtATime) + 1) << "and makes room for the last one";
}

TEST_F(ManyClaims, AreNotBegunOnceTheirRequestIsAnswered) {
  settings.answer_within = 50ms;
  start();
  reader.silent = true;
  const auto late = wait_for(ask(many(40)));
  EXPECT_THAT(late, SizeIs(40));
  for (const ClaimAnswer& answer : late)
    EXPECT_THAT(answer.devices.error().message, HasSubstr("still being prepared")) << answer.uid;
  EXPECT_EQ(reader.reads, static_cast<int>(kAtATime)) << "the kubelet asks again for the others";
  reader.silent = false;
  EXPECT_EQ(error_of(prepare({allocate("render-a", {{"card", kWhole}})})), "");
}

}  // namespace
}  // namespace ferry::dra
