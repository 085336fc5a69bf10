// SPDX-License-Identifier: Apache-2.0
// The rounds of hostd: the desired state, the status, and the end.
#include "host/node_keeper.h"

#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <string>
#include <unistd.h>
#include <utility>

#include <gmock/gmock.h>

#include "api/host_status.h"
#include "api/serving.h"
#include "tests/host/keeper_node.h"
#include "tests/support/listings.h"
#include "tests/support/log_of.h"
#include "tests/support/must.h"

namespace ferry::host {
namespace {

using namespace std::chrono_literals;
using test::must;
using testing::Contains;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::IsSupersetOf;
using testing::SizeIs;

TEST_F(NodeKeeperTest, ChangesNothingWhereNothingIsDesired) {
  EXPECT_EQ(round().phase, api::NodePhase::idle);
  EXPECT_THAT(host_writes(), IsEmpty());
  EXPECT_EQ(state().phase, api::NodePhase::idle);
  EXPECT_FALSE(state().desired);
  EXPECT_EQ(gpu(kFirst).state, api::GpuState::unmanaged);
  EXPECT_EQ(gpu(kFirst).mode, policy::Mode::host);
  EXPECT_EQ(gpu(kFirst).driver, "nvidia");
  EXPECT_EQ(gpu(kFirst).id, "10de:1eb8");
}

// The plugin and the agent, whose containers have no /proc, believe each record.
TEST_F(NodeKeeperTest, RemovesTheRecordOfAWriteThatHasEnded) {
  const std::string folder = "run/ferry/stuck-writes/";
  kernel_.file(folder + "700.json", R"({"pid": 700, "act": "write /x", "value": "", "boot_id": "a"})");
  kernel_.file(folder + "701.json", R"({"pid": 701, "act": "write /x", "value": "", "boot_id": "b"})");
  round();
  EXPECT_THAT(must(kernel_.list("run/ferry/stuck-writes")), ElementsAre("701.json"));
}

TEST_F(NodeKeeperTest, LogsOnceThatItCannotRemoveARecord) {
  const std::string file = "run/ferry/stuck-writes/700.json";
  kernel_.file(file, R"({"pid": 700, "act": "write /x", "value": "", "boot_id": "a"})");
  kernel_.fail_for_good({.path = "remove " + file, .value = ""}, EIO);
  const test::LogOf log;
  const auto warnings = [&] {
    const std::string text = log.text();
    const std::string warning = "remove /" + file;
    std::size_t count = 0;
    for (auto at = text.find(warning); at != std::string::npos; at = text.find(warning, at + 1)) ++count;
    return count;
  };
  round();
  round();
  EXPECT_EQ(warnings(), 1U);
  kernel_.mend();
  round();
  kernel_.file(file, R"({"pid": 700, "act": "write /x", "value": "", "boot_id": "a"})");
  kernel_.fail_for_good({.path = "remove " + file, .value = ""}, EIO);
  round();
  EXPECT_EQ(warnings(), 2U);
}

TEST_F(NodeKeeperTest, MakesTheNodeAsDesiredAndSaysSo) {
  want(kAllAway, 12);
  const auto done = round();
  EXPECT_EQ(done.phase, api::NodePhase::ready);
  EXPECT_EQ(done.status, ExitStatus::done);
  EXPECT_FALSE(done.again);
  EXPECT_THAT(drivers(), ElementsAre("vfio-pci", "vfio-pci", "vfio-pci"));
  const api::HostStatus reported = state();
  EXPECT_EQ(reported.desired.value_or(api::DesiredMark()), (api::DesiredMark{12, "a", "a test"}));
  EXPECT_EQ(reported.phase, api::NodePhase::ready);
  EXPECT_EQ(reported.boot_id, "b");
  EXPECT_EQ(reported.pid, ::getpid());
  EXPECT_EQ(gpu(kSecond).mode, policy::Mode::passthrough);
  EXPECT_EQ(gpu(kSecond).desired, policy::Mode::passthrough);
  EXPECT_EQ(gpu(kSecond).state, api::GpuState::ready);
}

TEST_F(NodeKeeperTest, WithdrawsTheReadyFilesBeforeItChangesAGpu) {
  want(kAllAway);
  rounds();
  EXPECT_FALSE(kernel_.exists("run/nvidia/validations")) << "only if asked";
  settings_.validations = true;
  NodeKeeper keeper = make_keeper();
  keeper.round();
  EXPECT_TRUE(kernel_.exists(kVfioReady));
  kernel_.forget_changes();
  want(kAllAway, 2);
  keeper.round();
  for (const test::HostChange& change : kernel_.changes())
    EXPECT_EQ(change.path, settings_.status_file) << "it is so already";
  for (const char* const next : {kAllBack, kDivided}) {
    want(kAllAway);
    keeper.round();
    ASSERT_TRUE(kernel_.exists(kVfioReady));
    kernel_.forget_changes();
    want(next);
    keeper.round();
    EXPECT_FALSE(kernel_.exists(kVfioReady));
    const auto at = [&](std::string_view part) {
      return std::ranges::find_if(kernel_.changes(), [=](const test::HostChange& change) {
        return change.path.find(part) != std::string::npos;
      });
    };
    EXPECT_LT(at(kVfioReady), at("unbind"));
  }
  EXPECT_TRUE(kernel_.exists(kVgpuReady));
  EXPECT_EQ(kernel_.read_file(kWorkloadType).value_or(""), "vm-vgpu\n");
  kernel_.file(kDesired, "{}");
  keeper.round();
  EXPECT_FALSE(kernel_.exists(kVgpuReady)) << "nothing says what is desired";
  EXPECT_EQ(kernel_.read_file(kWorkloadType).value_or(""), "vm-vgpu\n");
  kernel_.remove(kDesired);
  keeper.round();
  EXPECT_EQ(kernel_.read_file(kWorkloadType).value_or(""), "vm-vgpu\n");
}

// What is taken away cannot be put back for the pod that was given it. Groups come back.
TEST_F(NodeKeeperTest, TakesNoVgpuAwayWhileItsUsersAreNotKnown) {
  want("  - {devices: [0], mode: passthrough}\n" + std::string(kDivided));
  EXPECT_EQ(rounds().phase, api::NodePhase::ready);
  vgpu_users_.blind = "the kubelet does not answer";
  want(kAllBack);
  const auto refused = rounds();
  EXPECT_EQ(refused.phase, api::NodePhase::blocked);
  EXPECT_THAT(gpu(kSecond).reason, HasSubstr("the kubelet does not answer"));
  EXPECT_THAT(mdev_.devices_on(kSecond), SizeIs(2));
  EXPECT_EQ(kernel_.driver_of(kFirst), "nvidia");
  vgpu_users_.blind.clear();
  now_ += 1h;
  EXPECT_EQ(rounds().phase, api::NodePhase::ready);
  EXPECT_THAT(mdev_.devices_on(kSecond), IsEmpty());
}

TEST_F(NodeKeeperTest, WritesNothingWhenNothingHasChanged) {
  start_plugin();
  want(kAllAway);
  rounds();
  kernel_.forget_changes();
  EXPECT_EQ(rounds().phase, api::NodePhase::ready);
  EXPECT_THAT(kernel_.changes(), IsEmpty());
}

TEST_F(NodeKeeperTest, TakesUpAnotherDesiredState) {
  want(kAllAway);
  round();
  want(kDivided);
  EXPECT_EQ(round().phase, api::NodePhase::ready) << "GPUs that no item is for are left as they are";
  EXPECT_THAT(drivers(), ElementsAre("vfio-pci", "nvidia", "vfio-pci"));
  EXPECT_THAT(gpu(kSecond).vgpus, SizeIs(2));
  EXPECT_EQ(gpu(kSecond).vgpus.at(0).type, "T4-4Q");
  // Four of them fit; a GPU that carries vGPUs of one size takes none of another.
  EXPECT_THAT(gpu(kSecond).more_vgpus, IsSupersetOf({std::pair("T4-4Q", 2U), {"T4-8Q", 0U}}));
  EXPECT_THAT(gpu(kFirst).more_vgpus, IsEmpty()) << "nobody lists what could be made on a GPU on vfio";
  EXPECT_EQ(gpu(kFirst).state, api::GpuState::unmanaged);
}

TEST_F(NodeKeeperTest, LeavesTheHostAsItIsWhenItCannotReadWhatIsDesired) {
  want(kAllAway);
  round();
  kernel_.forget_changes();
  kernel_.file(kDesired, "{\"version\": 2,\n \"polcy\": \"a\"}");
  const auto broken = round();
  EXPECT_EQ(broken.phase, api::NodePhase::failed);
  EXPECT_EQ(broken.status, ExitStatus::usage);
  EXPECT_THAT(host_writes(), IsEmpty());
  const auto error = state().error.value_or(api::StatusError());
  EXPECT_THAT(error.message,
              HasSubstr("/var/lib/ferry/desired.json:2: polcy: unknown key; did you mean 'policy'?"));
  EXPECT_EQ(gpu(kFirst).mode, policy::Mode::passthrough) << "the present state is reported all the same";
  want(kAllBack);
  EXPECT_EQ(round().phase, api::NodePhase::ready);
  EXPECT_FALSE(state().error);
  EXPECT_THAT(drivers(), ElementsAre("nvidia", "nvidia", "nvidia"));
}

TEST_F(NodeKeeperTest, FollowsTheFileThatIsNamed) {
  const auto write_policy = [this](const char* items) {
    kernel_.file("etc/ferry/policy.yaml", std::string("version: v2\npolicies:\n  a:\n") + items);
  };
  const auto grow_old = [this] {
    const auto file = kernel_.root() / "etc/ferry/policy.yaml";
    std::filesystem::last_write_time(file, std::filesystem::last_write_time(file) - 2s);
  };
  write_policy(kAllAway);
  kernel_.file(kDesired, R"({"version": 2, "policy": "a", "file": "/etc/ferry/policy.yaml"})");
  const auto early = round();
  EXPECT_THAT(host_writes(), IsEmpty()) << "somebody may be writing still";
  EXPECT_TRUE(early.unfinished);
  EXPECT_EQ(early.again, now_ + 1s);
  EXPECT_EQ(early.file.value_or(""), "/etc/ferry/policy.yaml");
  grow_old();
  const auto done = round();
  EXPECT_FALSE(done.unfinished);
  EXPECT_EQ(done.file.value_or(""), "/etc/ferry/policy.yaml");
  EXPECT_THAT(drivers(), Contains("vfio-pci"));
  write_policy(kAllAway);
  EXPECT_FALSE(round().unfinished) << "the same again";
  write_policy(kAllBack);
  EXPECT_TRUE(round().unfinished);
  grow_old();
  round();
  EXPECT_THAT(drivers(), ElementsAre("nvidia", "nvidia", "nvidia"));
}

TEST_F(NodeKeeperTest, WritesItsFileAnewWhenItIsGone) {
  want(kAllAway);
  round();
  kernel_.remove("run/ferry");
  EXPECT_EQ(round().phase, api::NodePhase::ready);
  EXPECT_EQ(state().phase, api::NodePhase::ready);
}

TEST_F(NodeKeeperTest, TellsOfTheAcceleratorsAsTheyWereWhereTheyCannotBeRead) {
  want(kAllAway);
  round();
  kernel_.remove("sys/bus/pci/devices");
  EXPECT_EQ(round().phase, api::NodePhase::failed);
  EXPECT_THAT(state().accelerators, SizeIs(3));
  EXPECT_EQ(gpu(kFirst).mode, policy::Mode::passthrough);
}

TEST_F(NodeKeeperTest, GivesBackToTheKubeletWhatItNoLongerChanges) {
  start_plugin_with_all();
  want(kFirstBack);
  round();
  EXPECT_THAT(unavailable(), ElementsAre(kFirst));
  must(keeper_.end());
  EXPECT_THAT(unavailable(), IsEmpty());
  EXPECT_EQ(kernel_.driver_of(kFirst), "vfio-pci");
}

TEST_F(NodeKeeperTest, ItsEndIsNoFailureOfWhatIsDesired) {
  start_plugin_with_all();
  want(kFirstBack);
  EXPECT_EQ(round().phase, api::NodePhase::applying);
  must(keeper_.end());
  EXPECT_EQ(state().phase, api::NodePhase::applying);
  EXPECT_THAT(state().error.value_or(api::StatusError()).message, HasSubstr("hostd ended"));
}

TEST_F(NodeKeeperTest, CountsOnAfterARestart) {
  want(kAllAway);
  round();
  const auto before = state().generation;
  NodeKeeper next = make_keeper();
  next.round();
  EXPECT_EQ(state().generation, before + 1);
}

// Its audio function went to vfio with it, and no policy speaks of that.
TEST_F(NodeKeeperTest, GivesBackWhatAnUnpluggedGpuHasLeftBehind) {
  constexpr const char* kAudio = "0000:05:00.1";
  kernel_.add_driver({.name = "snd_hda_intel", .ids = {"class:0403"}});
  kernel_.add_function({"10de:10f8", 0x040300}, kAudio, 5, "snd_hda_intel");
  want(kAllAway);
  EXPECT_EQ(round().phase, api::NodePhase::ready);
  ASSERT_EQ(kernel_.driver_of(kAudio), "vfio-pci");
  kernel_.remove("sys/class/mdev_bus/0000:05:00.0");
  kernel_.remove_function(kFirst);
  users_.held = {{kAudio, vm(412)}};
  EXPECT_EQ(round().phase, api::NodePhase::blocked);
  EXPECT_EQ(kernel_.driver_of(kAudio), "vfio-pci");
  EXPECT_EQ(gpu(kAudio).state, api::GpuState::blocked);
  EXPECT_EQ(gpu(kAudio).desired, policy::Mode::host);
  EXPECT_THAT(gpu(kAudio).reason, HasSubstr("VM tenant (pid 412)"));
  users_.held.clear();
  EXPECT_EQ(round().phase, api::NodePhase::ready);
  EXPECT_EQ(kernel_.driver_of(kAudio), "snd_hda_intel");
  EXPECT_THAT(state().accelerators, SizeIs(2)) << "a sound card is none";
}

// Between the plan and what is published of it.
TEST_F(NodeKeeperTest, OutlivesAGpuThatIsUnpluggedWhileItIsRefused) {
  users_.held = {{kFirst, vm(412)}};
  int looks = 0;
  users_.before_scan = [&] {
    if (++looks == 2) kernel_.remove_function(kFirst);
  };
  want(kAllAway);
  round();
  round();
  EXPECT_THAT(drivers(), ElementsAre("", "vfio-pci", "vfio-pci"));
}

// A scan of the plan, the first and the last one of apply_policy(), and one of the result.
TEST_F(NodeKeeperTest, ScansTheHostFourTimesForAChangeOfEightGpus) {
  for (unsigned bus = 8; bus < 13; ++bus)
    kernel_.add_function(test::kinds::kTeslaT4Board,
                         "0000:0" + std::string(1, "0123456789abc"[bus]) + ":00.0", bus, "nvidia");
  ASSERT_EQ(round().phase, api::NodePhase::idle);
  ASSERT_THAT(state().accelerators, SizeIs(8));
  want(kAllAway);
  test::Listings scans(kernel_.root() / "sys/bus/pci/devices");
  ASSERT_TRUE(scans.work());
  ASSERT_TRUE(kernel_.list("sys/bus/pci/devices"));
  ASSERT_EQ(scans.count(), 1U) << "each one is counted";
  EXPECT_EQ(round().phase, api::NodePhase::ready);
  EXPECT_THAT(state().accelerators,
              Each(testing::Field(&api::AcceleratorStatus::mode, policy::Mode::passthrough)));
  EXPECT_EQ(scans.count(), 4U);
}

// The file outlives a reboot, and nobody else is asked.
TEST_F(NodeKeeperTest, HandsOnWhetherThePluginShallServe) {
  kernel_.file(kServing, api::serving_file_text("another serves"));
  EXPECT_EQ(round().phase, api::NodePhase::idle);
  EXPECT_EQ(state().standby, "another serves");
  want(kAllAway);
  round();
  EXPECT_EQ(state().phase, api::NodePhase::ready);
  EXPECT_EQ(state().standby, "another serves");
  must(keeper_.end());
  EXPECT_EQ(state().standby, "another serves") << "whether hostd runs changes nothing of it";
  kernel_.remove(kServing);
  round();
  EXPECT_EQ(state().standby, "");
}

// While it waits for the next try of what has failed it says nothing else, for minutes.
TEST_F(NodeKeeperTest, HandsItOnAlsoBetweenTwoTries) {
  want("  - {devices: [1], mode: passthrough}\n");
  round();
  kernel_.remove("sys/bus/pci/drivers/vfio-pci/bind");
  want("  - {devices: [0], mode: passthrough}\n");
  ASSERT_EQ(round().phase, api::NodePhase::failed);
  kernel_.file(kServing, api::serving_file_text("another serves"));
  kernel_.forget_changes();
  round();
  EXPECT_EQ(state().standby, "another serves");
  EXPECT_EQ(state().phase, api::NodePhase::failed);
  EXPECT_THAT(host_writes(), IsEmpty());
}

TEST_F(NodeKeeperTest, KeepsTheLastDesiredStateWhereThatCannotBeRead) {
  kernel_.file(kServing, api::serving_file_text("another serves"));
  round();
  kernel_.file(kServing, "{");
  round();
  EXPECT_EQ(state().standby, "another serves");
  auto next = make_keeper();
  next.round();
  EXPECT_EQ(state().standby, "another serves") << "also over a restart";
}

}  // namespace
}  // namespace ferry::host
