// SPDX-License-Identifier: Apache-2.0
// The rounds of hostd while GPUs and drivers come and go between a plan and its writes, and GPUs of the host
// without a driver.
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "host/node_observation.h"
#include "tests/host/keeper_node.h"

namespace ferry::host {
namespace {

using namespace std::chrono_literals;
using test::must;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class ChangingHost : public NodeKeeperTest {
 protected:
  static constexpr const char* kFourth = "0000:08:00.0";
  static constexpr const char* kAudio = "0000:05:00.1";

  ChangingHost() {
    settings_.plugin_patience = 0s;
    kernel_.add_driver({.name = "snd_hda_intel", .ids = {"class:0403"}});
  }
  void bind(const std::string& driver, const std::string& address) {
    must(kernel_.write_attribute("sys/bus/pci/drivers/" + driver + "/bind", address));
  }
  void unbind(const std::string& address) {
    must(kernel_.write_attribute("sys/bus/pci/drivers/" + kernel_.driver_of(address) + "/unbind", address));
  }
  /// Makes the event happen at the n-th look for device users from now, counted from 1.
  void at_look(int n, std::function<void()> event) {
    users_.before_scan = [n, event = std::move(event), looks = 0]() mutable {
      if (++looks == n) event();
    };
  }
  /// No status may be without its reason, or be ready where a mode is not the desired one.
  void is_honest() const {
    const api::HostStatus now = state();
    for (const api::AcceleratorStatus& gpu : now.accelerators) {
      const bool differs = gpu.desired && gpu.desired != gpu.mode;
      EXPECT_FALSE(differs && (gpu.state == api::GpuState::ready || now.phase == api::NodePhase::ready))
          << gpu.address.text();
      if (gpu.state == api::GpuState::failed || gpu.state == api::GpuState::blocked) {
        EXPECT_FALSE(gpu.reason.empty()) << gpu.address.text();
      }
    }
  }
  /// Rounds as the loop runs them, without any event: each follows the one before it at once.
  Round rounds_at_once() {
    Round last = round();
    is_honest();
    for (int i = 0; i < 20 && last.unfinished; ++i) {
      EXPECT_EQ(last.phase, api::NodePhase::applying);
      EXPECT_EQ(last.again, now_) << "at once";
      last = round();
      is_honest();
    }
    return last;
  }
};

/// The first part is on the host before the round, the second happens between its plan and its writes.
using Event = std::pair<std::function<void()>, std::function<void()>>;

class EachLook : public ChangingHost, public testing::WithParamInterface<int> {
 protected:
  std::map<std::string, Event> events() {
    const auto nothing = [] {};
    return {
        {"a GPU is unplugged", {nothing, [this] { kernel_.remove_function(kSecond); }}},
        {"a GPU is plugged in", {nothing, [this] { add_t4(kFourth, 8); }}},
        {"a GPU is plugged in without a driver",
         {nothing, [this] { kernel_.add_function(test::kinds::kTeslaT4, kFourth, 8); }}},
        {"a GPU is unplugged and another plugged in",
         {nothing,
          [this] {
            kernel_.remove_function(kThird);
            add_t4(kFourth, 8);
          }}},
        {"a driver is loaded",
         {[this] { unbind(kThird); },
          [this] {
            if (kernel_.driver_of(kThird).empty() && kernel_.override_of(kThird).empty())
              bind("nvidia", kThird);
          }}},
        {"the audio of a card appears",
         {nothing, [this] { kernel_.add_function(test::kinds::kAudio, kAudio, 5, "snd_hda_intel"); }}},
    };
  }
  std::vector<std::string> functions() const { return must(kernel_.list("sys/bus/pci/devices")); }
};

TEST_P(EachLook, IsFollowedByAPlanAtOnceAndNeverByAFailure) {
  for (const auto& [name, event] : events()) {
    SCOPED_TRACE(name);
    want(kAllBack);
    EXPECT_EQ(rounds_at_once().phase, api::NodePhase::ready);
    event.first();
    want(kAllAway);
    at_look(GetParam(), event.second);
    EXPECT_EQ(rounds_at_once().phase, api::NodePhase::ready);
    users_.before_scan = nullptr;
    EXPECT_EQ(rounds_at_once().phase, api::NodePhase::ready) << "the event may have come after the last scan";
    for (const std::string& address : functions())
      EXPECT_EQ(kernel_.driver_of(address), "vfio-pci") << address;
    // The way back leads to the drivers that came meanwhile.
    want(kAllBack);
    EXPECT_EQ(rounds_at_once().phase, api::NodePhase::ready);
    for (const std::string& address : functions())
      EXPECT_EQ(kernel_.driver_of(address), address == kAudio ? "snd_hda_intel" : "nvidia") << address;
    for (const std::string& address : functions())
      if (address != kFirst) kernel_.remove_function(address);
    add_t4(kSecond, 6);
    add_t4(kThird, 7);
  }
}

INSTANTIATE_TEST_SUITE_P(OfARound, EachLook, testing::Range(1, 7));

TEST_F(ChangingHost, IsPlannedAgainWithoutEndOnlyWithPauses) {
  RoundSnapshot snapshot;
  snapshot.stage = Stage::finished;
  snapshot.is_outdated = true;
  snapshot.in_vain = true;
  snapshot.error = Error{.code = make_error_code(Errc::failed), .message = "it is so"};
  snapshot.now = now_;
  for (unsigned i = 0; i < kMostReplans; ++i) {
    const ReconcileResult result = reconcile(snapshot);
    EXPECT_EQ(result.round.phase, api::NodePhase::applying);
    EXPECT_EQ(result.round.again, now_);
    EXPECT_FALSE(result.status->error);
    snapshot.memory.attempt = result.memory;
  }
  ReconcileResult result = reconcile(snapshot);
  EXPECT_EQ(result.round.phase, api::NodePhase::failed);
  EXPECT_EQ(result.round.again, now_ + kFirstPause);
  EXPECT_EQ(result.status->error->message, "it is so");
  snapshot.memory.attempt = result.memory;
  snapshot.is_outdated = false;
  result = reconcile(snapshot);
  EXPECT_EQ(result.memory.replans, 0U) << "the host is quiet again";
}

// The plan's own changes, done or half done, are no change by another program.
TEST_F(ChangingHost, KnowsThePlansOwnChanges) {
  const auto scan = [&] {
    return must(scan_node(context({.for_rebinds = users_, .for_vgpus = users_, .open_nodes = users_})));
  };
  const ScannedNode before = scan();
  NodePreview plan;
  plan.bound.plan.rebinds.push_back({.devices = {vfio::PciAddress::parse(kFirst).value()},
                                     .members = {{.address = vfio::PciAddress::parse(kFirst).value(),
                                                  .role = vfio::MemberRole::accelerator,
                                                  .driver_before = "nvidia",
                                                  .driver_after = "vfio-pci"}}});
  EXPECT_FALSE(is_outdated(plan, before, before));
  unbind(kFirst);
  EXPECT_FALSE(is_outdated(plan, before, scan())) << "half done";
  EXPECT_TRUE(is_outdated({}, before, scan()));
  must(kernel_.load_module("vfio_pci"));
  must(kernel_.write_attribute("sys/bus/pci/devices/0000:05:00.0/driver_override", "vfio-pci"));
  bind("vfio-pci", kFirst);
  EXPECT_FALSE(is_outdated(plan, before, scan()));
  unbind(kSecond);
  EXPECT_TRUE(is_outdated(plan, before, scan()));
  bind("nvidia", kSecond);
  kernel_.add_function({.address = "0000:09:00.0", .ids = "8086:1572", .class_code = 0x020000, .group = 9});
  EXPECT_FALSE(is_outdated(plan, before, scan())) << "a network card";
  kernel_.remove_function(kSecond);
  kernel_.add_function({.address = kSecond, .ids = "10de:2684", .class_code = 0x030200, .group = 6});
  EXPECT_TRUE(is_outdated(plan, before, scan())) << "another card";
}

// -- GPUs of the host without a driver --

TEST_F(ChangingHost, IsBlockedWhileAGpuForTheHostHasNoDriver) {
  want(kAllBack);
  unbind(kSecond);
  Round last = round();
  EXPECT_EQ(last.phase, api::NodePhase::blocked);
  EXPECT_EQ(last.status, ExitStatus::refused);
  EXPECT_FALSE(last.again) << "the kernel reports a driver that takes it";
  EXPECT_EQ(gpu(kSecond).state, api::GpuState::blocked);
  EXPECT_THAT(gpu(kSecond).reason, HasSubstr("no driver has taken it"));
  EXPECT_FALSE(gpu(kSecond).hint.empty());
  EXPECT_FALSE(gpu(kSecond).only_in_use);
  EXPECT_EQ(gpu(kFirst).state, api::GpuState::ready);
  kernel_.forget_changes();
  EXPECT_EQ(round().phase, api::NodePhase::blocked);
  EXPECT_THAT(host_writes(), IsEmpty());
  bind("nvidia", kSecond);
  EXPECT_EQ(round().phase, api::NodePhase::ready);
}

TEST_F(ChangingHost, IsBlockedWhilePciStubHoldsAGpuForTheHost) {
  want(kAllBack);
  unbind(kSecond);
  kernel_.add_driver({.name = "pci-stub"});
  must(kernel_.write_attribute(std::string("sys/bus/pci/devices/") + kSecond + "/driver_override",
                               "pci-stub"));
  bind("pci-stub", kSecond);
  EXPECT_EQ(round().phase, api::NodePhase::blocked);
  EXPECT_THAT(gpu(kSecond).reason, HasSubstr("pci-stub holds it"));
  EXPECT_EQ(kernel_.driver_of(kSecond), "pci-stub") << "whoever bound it there may want that";
}

TEST_F(ChangingHost, IsBlockedWhileAGpuOfAnyModeDoesNotWork) {
  unsigned generation = 0;
  for (const char* items : {kAllBack, "  - {devices: all, mode: vgpu, vgpu-devices: {}}\n"}) {
    SCOPED_TRACE(items);
    const std::string config = std::string("sys/bus/pci/devices/") + kSecond + "/config";
    kernel_.file(config, std::string(64, '\0'));
    want(items, ++generation);
    EXPECT_EQ(rounds().phase, api::NodePhase::ready);
    kernel_.file(config, std::string(64, '\xff'));
    const Round last = round();
    EXPECT_EQ(last.phase, api::NodePhase::blocked);
    EXPECT_EQ(last.status, ExitStatus::refused);
    EXPECT_EQ(gpu(kSecond).state, api::GpuState::blocked);
    EXPECT_THAT(gpu(kSecond).reason, HasSubstr("off the bus"));
    EXPECT_EQ(gpu(kFirst).state, api::GpuState::ready);
  }
}

TEST_F(ChangingHost, BlocksNoGpuWithoutADriverThatHasAnotherMode) {
  unbind(kSecond);
  want("  - {devices: [0], mode: host}\n  - {devices: [2], mode: passthrough}\n");
  EXPECT_EQ(rounds_at_once().phase, api::NodePhase::ready) << "no item is for it";
  want("  - {devices: [1], mode: passthrough}\n");
  EXPECT_EQ(rounds_at_once().phase, api::NodePhase::ready);
  EXPECT_EQ(kernel_.driver_of(kSecond), "vfio-pci");
  want(kAllBack);
  EXPECT_EQ(rounds_at_once().phase, api::NodePhase::ready) << "the way back ends with a probe";
  EXPECT_THAT(drivers(), ElementsAre("nvidia", "nvidia", "nvidia"));
}

}  // namespace
}  // namespace ferry::host
