// SPDX-License-Identifier: Apache-2.0
// The rounds of hostd: failures, back-off, and what a killed run left.
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

#include <gmock/gmock.h>

#include "api/host_status.h"
#include "hostfs/locks.h"
#include "hostfs/stuck_writes.h"
#include "tests/host/keeper_node.h"
#include "tests/support/must.h"
#include "vfio/bind/fence.h"

namespace ferry::host {
namespace {

using namespace std::chrono_literals;
using test::must;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

// -- what a run that was killed has left --

constexpr const char* kStopped = "run/ferry/hostd/stopped-services.json";
constexpr const char* kDcgmStopped =
    R"({"version":1,"boot_id":"b","services":{"nvidia-dcgm.service":"to start"}})";

TEST_F(NodeKeeperTest, MakesGoodWhatWasLeftWhateverIsDesired) {
  const std::map<std::string, api::NodePhase> desired = {
      {"", api::NodePhase::idle},
      {"{", api::NodePhase::failed},
      {R"({"version": 2, "policy": "none"})", api::NodePhase::failed}};
  for (const auto& [status, phase] : desired) {
    SCOPED_TRACE(status);
    kernel_.file(kStopped, kDcgmStopped);
    must(vfio::record_lock(kernel_, vfio::PciAddress::parse(kFirst).value()));
    if (!status.empty()) kernel_.file(kDesired, status);
    services_.started.clear();
    locks_.released.clear();
    EXPECT_EQ(round().phase, phase);
    EXPECT_THAT(services_.started, ElementsAre("nvidia-dcgm.service"));
    EXPECT_THAT(locks_.released, ElementsAre(kFirst));
    EXPECT_FALSE(kernel_.exists(kStopped));
    EXPECT_THAT(must(vfio::recorded_locks(kernel_)), IsEmpty());
    round();
    EXPECT_THAT(services_.started, SizeIs(1)) << "once";
  }
}

// The usual end of a bind of all GPUs: nvidia-persistenced does not start until one is back.
TEST_F(NodeKeeperTest, LeavesAServiceThatWaitsForADevice) {
  constexpr const char* kWaiting =
      R"({"version":1,"boot_id":"b","services":{"nvidia-persistenced.service":"waits for a device"}})";
  want(kAllAway);
  rounds();
  kernel_.file(kStopped, kWaiting);
  std::optional<NodeLock> other = must(NodeLock::take(kernel_, 0ms));
  EXPECT_EQ(round().phase, api::NodePhase::ready);
  kernel_.remove(kDesired);
  EXPECT_EQ(round().phase, api::NodePhase::idle);
  EXPECT_THAT(services_.started, IsEmpty());
  EXPECT_EQ(kernel_.read_file(kStopped).value_or(""), kWaiting);
  other.reset();
  must(kernel_.write_attribute("sys/bus/pci/devices/" + std::string(kFirst) + "/driver_override", "\n"));
  must(kernel_.write_attribute("sys/bus/pci/drivers/vfio-pci/unbind", kFirst));
  must(kernel_.write_attribute("sys/bus/pci/drivers/nvidia/bind", kFirst));
  EXPECT_EQ(round().phase, api::NodePhase::idle);
  EXPECT_THAT(services_.started, ElementsAre("nvidia-persistenced.service"));
  EXPECT_FALSE(kernel_.exists(kStopped));
}

// nvidia-persistenced has gone with the driver's container, and an order about a service may be stuck.
TEST_F(NodeKeeperTest, LeavesWhatCannotBeStartedNow) {
  const std::string persistence =
      R"({"version":1,"boot_id":"b","services":{},"gpus":{")" + std::string(kFirst) + R"(":"to start"}})";
  const auto other = must(NodeLock::take(kernel_, 0ms));
  kernel_.file(kStopped, persistence);
  EXPECT_EQ(round().phase, api::NodePhase::idle);
  EXPECT_EQ(kernel_.read_file(kStopped).value_or(""), persistence);
  kernel_.file(kStopped, kDcgmStopped);
  kernel_.file("proc/77/stat", "77 (exe) D 1 77 77 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 4466 0\n");
  must(record_stuck_write(kernel_, 77, "systemctl start", "nvidia-dcgm.service"));
  EXPECT_EQ(round().phase, api::NodePhase::idle);
  EXPECT_THAT(services_.started, IsEmpty());
}

TEST_F(NodeKeeperTest, MakesGoodWhatWasLeftThoughThePolicyCannotBe) {
  kernel_.file(kStopped, kDcgmStopped);
  kernel_.add_function(test::kinds::kTeslaT4, "0000:05:00.1", 5, "nvidia");
  want("  - {devices: all, mode: host}\n  - {devices: [0], mode: passthrough}\n");
  EXPECT_EQ(round().phase, api::NodePhase::blocked);
  EXPECT_THAT(services_.started, ElementsAre("nvidia-dcgm.service"));
}

TEST_F(NodeKeeperTest, MakesGoodWhatWasLeftThoughPodsHaveAll) {
  start_plugin_with_all();
  plugin_follows();
  allocated_ = {kFirst, kSecond, kThird};
  plugin_follows();
  kernel_.file(kStopped, kDcgmStopped);
  want(kAllBack);
  EXPECT_EQ(rounds().phase, api::NodePhase::blocked);
  EXPECT_THAT(services_.started, ElementsAre("nvidia-dcgm.service"));
}

TEST_F(NodeKeeperTest, SaysWhatOfItFailsAndTriesAgain) {
  for (const bool broken_file : {false, true}) {
    SCOPED_TRACE(broken_file);
    if (broken_file) kernel_.file(kDesired, "{");
    kernel_.file(kStopped, kDcgmStopped);
    services_.fails = true;
    const auto failed = round();
    EXPECT_EQ(failed.phase, api::NodePhase::failed);
    EXPECT_NE(failed.status, ExitStatus::done);
    EXPECT_THAT(state().error.value_or(api::StatusError()).message,
                HasSubstr("nvidia-dcgm.service does not start"));
    ASSERT_TRUE(failed.again);
    services_.fails = false;
    services_.started.clear();
    EXPECT_EQ(round().again, failed.again);
    EXPECT_THAT(services_.started, IsEmpty()) << "deaf until it is time";
    now_ = *failed.again;
    EXPECT_EQ(keeper_.round().phase, broken_file ? api::NodePhase::failed : api::NodePhase::idle);
    EXPECT_THAT(services_.started, ElementsAre("nvidia-dcgm.service"));
  }
}

TEST_F(NodeKeeperTest, SaysThatALockStaysTakenAndTriesAgain) {
  must(vfio::record_lock(kernel_, vfio::PciAddress::parse(kFirst).value()));
  locks_.fails = true;
  const auto failed = round();
  EXPECT_EQ(failed.phase, api::NodePhase::failed);
  EXPECT_EQ(state().error.value_or(api::StatusError()).message,
            "the lock of 0000:05:00.0 against unbinding was left by an earlier run and stays taken");
  locks_.fails = false;
  ASSERT_TRUE(failed.again);
  now_ = *failed.again;
  EXPECT_EQ(keeper_.round().phase, api::NodePhase::idle);
}

TEST_F(NodeKeeperTest, MakesGoodWhatWasLeftOnceNobodyElseChangesTheHost) {
  kernel_.file(kStopped, kDcgmStopped);
  std::optional<NodeLock> other = must(NodeLock::take(kernel_, 0ms));
  const auto failed = round();
  EXPECT_EQ(failed.phase, api::NodePhase::failed);
  EXPECT_THAT(state().error.value_or(api::StatusError()).message,
              HasSubstr("another ferry is changing this host"));
  EXPECT_THAT(services_.started, IsEmpty());
  other.reset();
  ASSERT_TRUE(failed.again);
  now_ = *failed.again;
  EXPECT_EQ(keeper_.round().phase, api::NodePhase::idle);
  EXPECT_THAT(services_.started, ElementsAre("nvidia-dcgm.service"));
}

// -- failures --

TEST_F(NodeKeeperTest, TriesAgainAfterAFailureWhenItIsTimeAndNotBefore) {
  want("  - {devices: [1], mode: passthrough}\n");
  round();
  kernel_.remove("sys/bus/pci/drivers/vfio-pci/bind");
  want("  - {devices: [0], mode: passthrough}\n");
  const auto failed = round();
  EXPECT_EQ(failed.phase, api::NodePhase::failed);
  EXPECT_EQ(failed.status, ExitStatus::failed);
  EXPECT_EQ(gpu(kFirst).state, api::GpuState::failed);
  EXPECT_THAT(gpu(kFirst).reason, HasSubstr("vfio-pci/bind"));
  ASSERT_TRUE(failed.again);
  EXPECT_EQ(*failed.again, now_ + 10s);

  kernel_.forget_changes();
  EXPECT_EQ(round().again, failed.again) << "our own writes made events";
  EXPECT_THAT(kernel_.changes(), IsEmpty());
  auto last = failed;
  for (const auto pause : {20s, 40s, 80s, 160s, 300s, 300s}) {
    ASSERT_TRUE(last.again);
    now_ = *last.again;
    last = keeper_.round();
    EXPECT_EQ(last.again, now_ + pause);
    EXPECT_THAT(host_writes(), testing::Not(IsEmpty()));
    kernel_.forget_changes();
  }
  // Another desired state is another matter.
  want(kAllBack);
  EXPECT_EQ(round().phase, api::NodePhase::ready);
}

TEST_F(NodeKeeperTest, AdvertisesUnboundGpusAndTriesAgain) {
  start_plugin();
  want("  - {devices: [0], mode: vgpu, vgpu-devices: {T4-4Q: 2}}\n  - {devices: [1], mode: passthrough}\n");
  ASSERT_EQ(rounds().phase, api::NodePhase::ready);
  plugin_follows();
  const auto vgpus = gpu(kFirst).vgpus;
  kernel_.fail_for_good({.path = "sys/bus/pci/drivers/vfio-pci/bind", .value = kFirst}, EIO);
  want(
      "  - {devices: [0], mode: passthrough}\n  - {devices: [1], mode: vgpu, vgpu-devices: {L40S-12Q: 1}}\n");
  const auto failed = rounds();
  EXPECT_EQ(failed.phase, api::NodePhase::failed);
  EXPECT_THAT(drivers(), ElementsAre("nvidia", "vfio-pci", "nvidia"));
  EXPECT_EQ(gpu(kFirst).vgpus, vgpus);
  EXPECT_EQ(gpu(kFirst).state, api::GpuState::failed);
  EXPECT_THAT(gpu(kFirst).reason, HasSubstr("it could not be bound for passthrough: bind 0000:05:00.0"));
  EXPECT_EQ(gpu(kSecond).state, api::GpuState::blocked);
  EXPECT_THAT(gpu(kSecond).reason, HasSubstr("L40S-12Q"));
  EXPECT_THAT(unavailable(), IsEmpty());

  kernel_.mend();
  ASSERT_TRUE(failed.again);
  now_ = *failed.again;
  rounds();
  EXPECT_THAT(drivers(), ElementsAre("vfio-pci", "vfio-pci", "nvidia"));
}

TEST_F(NodeKeeperTest, HearsThatAPodEndsWhileAnotherGpuFails) {
  start_plugin_with_all();
  plugin_follows();
  allocated_ = {kSecond};
  plugin_follows();
  want("  - {devices: [0, 1], mode: host}\n");
  kernel_.remove("sys/bus/pci/drivers/vfio-pci/unbind");
  const auto failed = rounds();
  ASSERT_EQ(failed.phase, api::NodePhase::failed);
  kernel_.file("sys/bus/pci/drivers/vfio-pci/unbind", "");
  ASSERT_EQ(round().again, failed.again) << "deaf to all else";
  EXPECT_EQ(kernel_.driver_of(kFirst), "vfio-pci");
  allocated_.clear();
  EXPECT_EQ(rounds().phase, api::NodePhase::ready);
  EXPECT_THAT(drivers(), ElementsAre("nvidia", "nvidia", "vfio-pci"));
}

// The pod begins after the failed attempt and ends before the pause does.
TEST_F(NodeKeeperTest, HearsThatAPodEndsWhichHasComeSinceTheFailure) {
  start_plugin_with_all();
  plugin_follows();
  want("  - {devices: [0, 1], mode: host}\n");
  kernel_.remove("sys/bus/pci/drivers/vfio-pci/unbind");
  const auto failed = rounds();
  ASSERT_EQ(failed.phase, api::NodePhase::failed);
  kernel_.file("sys/bus/pci/drivers/vfio-pci/unbind", "");
  allocated_ = {kSecond};
  ASSERT_TRUE(plugin_follows());
  ASSERT_EQ(round().again, failed.again);
  EXPECT_EQ(kernel_.driver_of(kFirst), "vfio-pci");
  allocated_.clear();
  EXPECT_EQ(rounds().phase, api::NodePhase::ready);
  ASSERT_TRUE(failed.again);
  EXPECT_LT(now_, *failed.again) << "before the pause is over";
  EXPECT_THAT(drivers(), ElementsAre("nvidia", "nvidia", "vfio-pci"));
}

// The pause counts from the end of the attempt. The attempt's own events would else lead to the next one.
TEST_F(NodeKeeperTest, PausesFromTheEndOfWhatItHasTried) {
  want("  - {devices: [1], mode: passthrough}\n");
  round();
  kernel_.remove("sys/bus/pci/drivers/vfio-pci/bind");
  users_.before_scan = [this] { now_ += 60s; };
  want("  - {devices: [0], mode: passthrough}\n");
  const auto failed = round();
  EXPECT_EQ(failed.phase, api::NodePhase::failed);
  ASSERT_TRUE(failed.again);
  EXPECT_EQ(*failed.again, now_ + 10s);
  kernel_.forget_changes();
  round();
  EXPECT_THAT(host_writes(), IsEmpty());
}

TEST_F(NodeKeeperTest, DoesNothingWhileAnotherChangesTheHost) {
  want(kAllAway);
  std::optional<NodeLock> other = must(NodeLock::take(kernel_, 0ms));
  const auto failed = round();
  EXPECT_EQ(failed.phase, api::NodePhase::applying) << "nothing was tried, so nothing has failed";
  EXPECT_EQ(failed.status, ExitStatus::failed) << "of a single look";
  EXPECT_EQ(state().phase, api::NodePhase::applying);
  EXPECT_THAT(state().error.value_or(api::StatusError()).message,
              HasSubstr("another ferry is changing this host"));
  EXPECT_THAT(drivers(), ElementsAre("nvidia", "nvidia", "nvidia"));
  other.reset();
  ASSERT_TRUE(failed.again);
  now_ = *failed.again;
  EXPECT_EQ(keeper_.round().phase, api::NodePhase::ready);
}

// The next run reaches the desired state from each point of a killed run, and asks the plugin first.
TEST_F(NodeKeeperTest, GetsThereAfterDeathAtAnyChange) {
  constexpr const char* kMixed =
      "  - {devices: [0, 2], mode: passthrough}\n"
      "  - {devices: [1], mode: vgpu, vgpu-devices: {T4-4Q: 2}}\n";
  constexpr const char* kOther =
      "  - {devices: [0], mode: vgpu, vgpu-devices: {T4-8Q: 1}}\n"
      "  - {devices: [1, 2], mode: passthrough}\n";
  start_plugin();
  const auto reach = [&](const char* items) {
    want(items);
    NodeKeeper keeper = make_keeper();
    for (int i = 0; i < 6; ++i) {
      if (keeper.round().phase == api::NodePhase::ready && !plugin_follows()) return true;
      plugin_follows();
    }
    return false;
  };
  ASSERT_TRUE(reach(kMixed));
  kernel_.forget_changes();
  ASSERT_TRUE(reach(kOther));
  const std::size_t changes = kernel_.changes().size();
  ASSERT_GT(changes, 12U);
  for (std::size_t n = 1; n <= changes; ++n) {
    SCOPED_TRACE(n);
    ASSERT_TRUE(reach(kMixed));
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      kernel_.die_at_change(n);
      reach(kOther);
      ::_exit(EXIT_FAILURE);  // it should have died
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SUCCESS);
    ASSERT_TRUE(reach(kOther));
    EXPECT_THAT(drivers(), ElementsAre("nvidia", "vfio-pci", "vfio-pci"));
    EXPECT_THAT(mdev_.devices_on(kFirst), ElementsAre(HasSubstr("T4-8Q")));
    EXPECT_THAT(unavailable(), IsEmpty());
  }
}

}  // namespace
}  // namespace ferry::host
