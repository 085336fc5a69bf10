// SPDX-License-Identifier: Apache-2.0
// hostd's rounds: GPUs that VMs get whole are sanitized between two users.
#include "host/sanitize_look.h"

#include <functional>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "api/claimable_gpus.h"
#include "host/sanitize/gpu_history.h"
#include "host/sanitize/sanitize_step.h"
#include "tests/host/keeper_node.h"
#include "tests/support/must.h"
#include "tests/vfio/rebinds.h"
#include "vfio/confidential/mode_setting.h"
#include "vfio/registers/register_reading.h"

namespace ferry::host {
namespace {

using api::SanitizeResult;
using api::SanitizeState;
using test::must;
using testing::AllOf;
using testing::ElementsAre;
using testing::Ge;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Le;
using testing::SizeIs;
using testing::UnorderedElementsAre;
using vfio::Sanitizing;

class SanitizeLook : public NodeKeeperTest {
 protected:
  SanitizeLook() {
    for (const char* gpu : kGpus) enabled(gpu, false);
    settings_.sanitize = [this](HostWriter&, const HostFs&, const vfio::PciAddress& gpu) {
      reset_.push_back(gpu.text());
      const auto said = answers_.find(gpu.text());
      return said == answers_.end() ? Sanitizing{.method = "hot-reset"} : said->second;
    };
    restart();
  }
  /// hostd begins anew.
  void restart() {
    std::destroy_at(&keeper_);
    new (&keeper_) NodeKeeper(make_keeper());
  }
  /// A group that a program has is a node that cannot be opened: here a directory.
  void opened(const std::string& gpu, bool is_open) {
    enabled(gpu, is_open);
    const auto group = kernel_.link_name("sys/bus/pci/devices/" + gpu + "/iommu_group").value_or("");
    kernel_.remove("dev/vfio/" + group);
    if (is_open)
      kernel_.link("dev/vfio/" + group, ".");  // it is there, and cannot be opened
    else
      kernel_.file("dev/vfio/" + group, "");
  }
  void enabled(const std::string& gpu, bool is_enabled) {
    kernel_.file("sys/bus/pci/devices/" + gpu + "/enable", is_enabled ? "1\n" : "0\n");
  }
  /// All GPUs are on vfio-pci, and sanitized once.
  void begin(const std::string& policy = "required") {
    keys_ = "sanitize: " + policy + "\n";
    want(kAllAway);
    start_plugin();
    settle();
    reset_.clear();
  }
  /// Rounds until nothing is left to be done, as the loop makes them.
  Round settle() {
    Round last;
    for (int i = 0; i < 6; ++i) {
      last = round();
      plugin_follows();
    }
    return last;
  }
  api::SanitizeStatus sanitize(const std::string& address) const {
    const auto gpu = this->gpu(address).sanitize;
    EXPECT_TRUE(gpu) << address;
    return gpu.value_or(api::SanitizeStatus());
  }
  std::string unfit(const std::string& address) const {
    for (const api::UnfitDevice& one : api::unfit_devices(state()))
      if (one.id == address) return one.reason;
    return {};
  }
  void ask(const std::string& gpu, bool accepts) {
    must(write_sanitize_request(kernel_, {.gpu = must(vfio::PciAddress::parse(gpu)), .accepts = accepts}));
  }

  std::map<std::string, Sanitizing> answers_;
  std::vector<std::string> reset_;  ///< in this order
};

TEST_F(SanitizeLook, IsMadeUnlessThePolicyForbidsIt) {
  keys_.clear();
  want(kAllAway);
  start_plugin();
  settle();
  EXPECT_THAT(reset_, SizeIs(kGpus.size()));
  EXPECT_EQ(sanitize(kFirst).state, SanitizeState::available);
}

TEST_F(SanitizeLook, DoesNothingWithoutThePolicy) {
  want(kAllAway);
  start_plugin();
  settle();
  EXPECT_THAT(reset_, IsEmpty());
  EXPECT_FALSE(gpu(kFirst).sanitize);
  EXPECT_FALSE(kernel_.exists(kGpuHistoryFile));
}

TEST_F(SanitizeLook, ResetsAGpuOnceItsPodHasEnded) {
  begin();
  EXPECT_EQ(sanitize(kFirst).state, SanitizeState::available) << "it was sanitized after it was bound";
  EXPECT_EQ(sanitize(kFirst).count, 1U);
  allocated_.insert(kFirst);
  plugin_follows();
  settle();
  EXPECT_EQ(sanitize(kFirst).state, SanitizeState::in_use);
  EXPECT_THAT(reset_, IsEmpty());
  EXPECT_EQ(unfit(kFirst), "") << "the pod's device stays Healthy";

  allocated_.clear();
  plugin_follows();
  round();
  EXPECT_EQ(sanitize(kFirst).state, SanitizeState::sanitizing);
  EXPECT_THAT(reset_, IsEmpty()) << "the kubelet may still allocate it";
  EXPECT_THAT(unfit(kFirst), HasSubstr("is being sanitized after its last use")) << "in the same file";
  round();
  EXPECT_THAT(reset_, IsEmpty());
  plugin_follows();
  round();
  EXPECT_THAT(reset_, ElementsAre(kFirst));
  while (sanitize(kFirst).state == SanitizeState::sanitizing) {
    EXPECT_NE(unfit(kFirst), "");
    round();
  }
  EXPECT_EQ(unfit(kFirst), "") << "in the same file";
  plugin_follows();
  settle();
  EXPECT_EQ(sanitize(kFirst).state, SanitizeState::available);
  EXPECT_EQ(sanitize(kFirst).result, SanitizeResult::proven);
  EXPECT_EQ(sanitize(kFirst).count, 2U);
  EXPECT_EQ(unfit(kFirst), "");
  kernel_.forget_changes();
  settle();
  EXPECT_THAT(kernel_.writes(), IsEmpty()) << "a second run writes nothing";
}

TEST_F(SanitizeLook, WaitsForNoPluginThatDoesNotRun) {
  begin();
  allocated_.insert(kFirst);
  plugin_follows();
  settle();
  allocated_.clear();
  plugin_follows();
  kill_plugin();
  settle();
  EXPECT_THAT(reset_, ElementsAre(kFirst));
}

TEST_F(SanitizeLook, AsksTheKubeletForAPodThatOutlivesThePlugin) {
  begin();
  allocated_.insert(kFirst);
  plugin_follows();
  settle();
  kill_plugin();
  users_.held.emplace(
      kFirst, vfio::DeviceUser{.kind = vfio::DeviceUser::Kind::pod, .name = "games/vm-1", .what = {}});
  settle();
  EXPECT_THAT(reset_, IsEmpty());
  EXPECT_EQ(sanitize(kFirst).state, SanitizeState::in_use);
  users_.held.clear();
  settle();
  EXPECT_THAT(reset_, ElementsAre(kFirst)) << "its list stays as it was";
}

TEST_F(SanitizeLook, SeesAUseThatNoRoundHasSeen) {
  begin();
  used_since_[kFirst] = sanitize(kFirst).count;
  plugin_follows();
  settle();
  EXPECT_THAT(reset_, ElementsAre(kFirst));
  settle();
  EXPECT_THAT(reset_, ElementsAre(kFirst)) << "the plugin's mark has an older count now";
}

TEST_F(SanitizeLook, TouchesNoGpuThatAProgramOrAClaimHas) {
  begin();
  opened(kFirst, true);
  claimed_.insert(must(vfio::PciAddress::parse(kSecond)));
  ask(kFirst, false);
  settle();
  ask(kSecond, false);
  settle();
  EXPECT_THAT(reset_, IsEmpty());
  EXPECT_EQ(sanitize(kFirst).state, SanitizeState::in_use);
  EXPECT_EQ(sanitize(kSecond).state, SanitizeState::in_use);
  EXPECT_FALSE(kernel_.exists(kSanitizeRequestFile));
}

TEST_F(SanitizeLook, TakesTheUseOfAGpuForThatOfItsGroup) {
  constexpr const char* kSibling = "0000:08:00.0";
  add_t4(kSibling, 5);  // the group of kFirst
  enabled(kSibling, false);
  begin();
  opened(kFirst, true);
  ask(kSibling, false);
  settle();
  EXPECT_THAT(reset_, IsEmpty());
  EXPECT_EQ(sanitize(kFirst).state, SanitizeState::in_use);
  EXPECT_EQ(sanitize(kSibling).state, SanitizeState::in_use);
  opened(kFirst, false);
  for (int i = 0; i < 3; ++i) settle();
  EXPECT_THAT(reset_, UnorderedElementsAre(kFirst, kSibling));
  EXPECT_EQ(sanitize(kSibling).state, SanitizeState::available);
}

TEST_F(SanitizeLook, TakesNoGpuForUsedThatADriverHasLeftEnabled) {
  enabled(kFirst, true);
  begin();
  EXPECT_EQ(sanitize(kFirst).state, SanitizeState::available);
}

TEST_F(SanitizeLook, TakesItsOwnResetForNoUser) {
  begin();
  std::vector<std::function<void()>> jobs;
  settings_.beside = [&](std::function<void()> job) { jobs.push_back(std::move(job)); };
  restart();
  settle();
  ask(kFirst, false);
  settle();
  ASSERT_EQ(jobs.size(), 1U);
  opened(kFirst, true);
  settle();
  EXPECT_EQ(sanitize(kFirst).state, SanitizeState::sanitizing);
  EXPECT_EQ(jobs.size(), 1U) << "one at a time";
  opened(kFirst, false);
  jobs.front()();
  settle();
  EXPECT_EQ(sanitize(kFirst).state, SanitizeState::available);
}

TEST_F(SanitizeLook, KeepsAGpuBackThatFails) {
  begin();
  answers_[kFirst] = {.method = "flr", .unproven = "its registers are not known"};
  ask(kFirst, false);
  settle();
  EXPECT_EQ(sanitize(kFirst).state, SanitizeState::failed);
  EXPECT_THAT(unfit(kFirst), HasSubstr("could not be sanitized after its last use: its registers are not"));
  EXPECT_EQ(gpu(kFirst).state, api::GpuState::ready) << "the policy's mode is reached";
  reset_.clear();
  settle();
  EXPECT_THAT(reset_, IsEmpty()) << "it waits for an administrator";
  ask(kFirst, true);
  settle();
  EXPECT_EQ(sanitize(kFirst).state, SanitizeState::available);
  EXPECT_EQ(sanitize(kFirst).result, SanitizeResult::accepted);
  EXPECT_EQ(unfit(kFirst), "");
  EXPECT_THAT(reset_, IsEmpty());
}

TEST_F(SanitizeLook, BestEffortKeepsNoGpuBack) {
  begin("best-effort");
  answers_[kFirst] = {.problem = "the kernel knows no method to reset it"};
  ask(kFirst, false);
  settle();
  EXPECT_EQ(sanitize(kFirst).state, SanitizeState::available);
  EXPECT_EQ(sanitize(kFirst).result, SanitizeResult::failed);
  EXPECT_EQ(unfit(kFirst), "");
}

TEST_F(SanitizeLook, GoesOnAfterARestartOfHostd) {
  begin();
  allocated_.insert(kFirst);
  plugin_follows();
  settle();
  allocated_.clear();
  plugin_follows();
  round();
  ASSERT_EQ(sanitize(kFirst).state, SanitizeState::sanitizing);
  restart();
  round();
  EXPECT_EQ(sanitize(kFirst).state, SanitizeState::sanitizing) << "no status in between lets it go";
  EXPECT_THAT(unfit(kFirst), HasSubstr("is being sanitized"));
  plugin_follows();
  settle();
  EXPECT_THAT(reset_, ElementsAre(kFirst));
  EXPECT_EQ(sanitize(kFirst).state, SanitizeState::available);
}

TEST_F(SanitizeLook, IsKilledAtEachWriteAndResetsTheGpuOnce) {
  begin();
  bool died = true;
  std::size_t n = 1;
  for (; died; ++n) {
    SCOPED_TRACE(n);
    ASSERT_LT(n, 40U);
    const std::uint64_t before = sanitize(kFirst).count;
    allocated_.insert(kFirst);
    plugin_follows();
    settle();
    ASSERT_EQ(sanitize(kFirst).state, SanitizeState::in_use);
    allocated_.clear();
    plugin_follows();
    died = test::dies([&] {
      kernel_.die_at_change(n);
      settle();
    });
    restart();
    for (int i = 0; i < 3; ++i) settle();
    EXPECT_EQ(sanitize(kFirst).state, SanitizeState::available);
    EXPECT_EQ(sanitize(kFirst).count, before + 1) << "no use goes without a reset, and a reset counts once";
    EXPECT_EQ(unfit(kFirst), "");
  }
  EXPECT_GT(n, 5U);
}

TEST_F(SanitizeLook, EndsWithThePolicy) {
  begin();
  answers_[kFirst] = {.problem = "no"};
  ask(kFirst, false);
  settle();
  ASSERT_NE(unfit(kFirst), "");
  keys_ = "sanitize: off\n";
  want(kAllAway, 2);
  settle();
  EXPECT_FALSE(gpu(kFirst).sanitize);
  EXPECT_EQ(unfit(kFirst), "");
}

TEST_F(SanitizeLook, FollowsNoUseWhileThePolicyIsOff) {
  begin();
  keys_ = "sanitize: off\n";
  want(kAllAway, 2);
  settle();
  allocated_.insert(kFirst);
  plugin_follows();
  settle();
  allocated_.clear();
  plugin_follows();
  settle();
  EXPECT_THAT(reset_, IsEmpty());
  keys_ = "sanitize: required\n";
  want(kAllAway, 3);
  settle();
  EXPECT_THAT(reset_, UnorderedElementsAre(kFirst, kSecond, kThird)) << "each may have had a user";
}

TEST_F(SanitizeLook, JudgesAFailureByTheNextPolicy) {
  begin();
  answers_[kFirst] = {.method = "flr", .unproven = "its registers are not known"};
  ask(kFirst, false);
  settle();
  ASSERT_EQ(sanitize(kFirst).state, SanitizeState::failed);
  keys_ = "sanitize: best-effort\n";
  want(kAllAway, 2);
  settle();
  EXPECT_EQ(sanitize(kFirst).state, SanitizeState::available);
  keys_ = "sanitize: required\n";
  want(kAllAway, 3);
  settle();
  EXPECT_EQ(sanitize(kFirst).state, SanitizeState::failed);
}

// The reset says that another program has the group open, and nothing that hostd sees does.
TEST_F(SanitizeLook, TriesABusyGpuAgainAfterAPause) {
  begin();
  answers_[kFirst] = {.in_use = true};
  ask(kFirst, false);
  settle();
  EXPECT_THAT(reset_, ElementsAre(kFirst));
  EXPECT_EQ(sanitize(kFirst).state, SanitizeState::in_use);
  for (int i = 0; i < 40; ++i) {
    EXPECT_TRUE(round().again) << "no event reports the end of that user";
    plugin_follows();
  }
  EXPECT_THAT(reset_, SizeIs(AllOf(Ge(3U), Le(5U))));
  const GpuHistories histories = must(load_gpu_histories(kernel_));
  EXPECT_LE(histories.gpus.front().events.size(), 6U) << "its history is not flooded";
  answers_.clear();
  for (int i = 0; i < 12; ++i) settle();
  EXPECT_EQ(sanitize(kFirst).state, SanitizeState::available);
}

TEST_F(SanitizeLook, SeesAfterAPauseThatAProgramHasClosedTheGroup) {
  begin();
  opened(kFirst, true);
  settle();
  ASSERT_EQ(sanitize(kFirst).state, SanitizeState::in_use);
  EXPECT_TRUE(round().again);
  opened(kFirst, false);
  settle();
  EXPECT_THAT(reset_, ElementsAre(kFirst));
}

// -- no status lets a GPU go before its look --

TEST_F(SanitizeLook, PublishesNoGpuWhosePastIsNotKnown) {
  const auto published_as = [&](KeeperMemory& memory, const char* driver_binding) {
    kernel_.file("proc/sys/kernel/random/boot_id", driver_binding);
    StatusFile file(kernel_, "run/ferry/status.json", memory);
    api::HostStatus status;
    api::AcceleratorStatus& one = status.accelerators.emplace_back();
    one.address = must(vfio::PciAddress::parse(kFirst));
    one.id = "10de:1eb8";
    one.mode = api::Mode::passthrough;
    one.findings.emplace();
    must(file.publish(status));
    return gpu(kFirst).sanitize;
  };
  KeeperMemory off;
  EXPECT_FALSE(published_as(off, "b\n"));
  KeeperMemory first;
  first.sanitize.policy = policy::Sanitize::best_effort;
  ASSERT_TRUE(published_as(first, "b\n"));
  EXPECT_EQ(sanitize(kFirst).state, SanitizeState::sanitizing);
  EXPECT_THAT(unfit(kFirst), HasSubstr("is being sanitized"));
  begin();
  KeeperMemory restarted;
  EXPECT_EQ(published_as(restarted, "b\n")->state, SanitizeState::available);
  KeeperMemory another_boot;
  EXPECT_EQ(published_as(another_boot, "c\n")->state, SanitizeState::sanitizing);
}

TEST(IsSanitized, EachClassOfAcceleratorsThatAVmHasWhole) {
  api::AcceleratorStatus gpu;
  for (const char* pci_class : {"0300", "0302", "0380", "1200"}) {
    gpu.pci_class = pci_class;
    gpu.mode = api::Mode::passthrough;
    EXPECT_TRUE(is_sanitized(gpu)) << pci_class;
    gpu.mode = api::Mode::vgpu;
    EXPECT_FALSE(is_sanitized(gpu)) << pci_class;
  }
  gpu.mode = api::Mode::passthrough;
  for (const char* other : {"0680", "0403"}) {
    gpu.pci_class = other;
    EXPECT_FALSE(is_sanitized(gpu)) << other << ", a switch or an audio function";
  }
}

TEST(ListedAs, IsOfTheGpuOrItsWholeGroup) {
  api::AcceleratorStatus gpu;
  gpu.address = must(vfio::PciAddress::parse("0000:18:00.0"));
  gpu.iommu_group = 42;
  const auto listed = [](std::vector<api::AdvertisedDevice> devices) {
    return api::AdvertisedResources{.devices = std::move(devices)};
  };
  const auto as_listed = [&](const std::vector<api::AdvertisedDevice>& devices) {
    return listed_as(gpu, listed(devices), std::vector{gpu});
  };
  const api::AdvertisedDevice other{
      .resource = "r", .id = "0000:17:00.0", .iommu_group = 42, .healthy = false, .used_since = 7};
  const api::AdvertisedDevice own{
      .resource = "r", .id = "0000:18:00.0", .iommu_group = 42, .healthy = false, .used_since = 3};
  EXPECT_EQ(as_listed({other, own}).used_since, 3U);
  EXPECT_EQ(as_listed({other}).used_since, std::nullopt) << "another device's count";
  EXPECT_FALSE(as_listed({other, own}).may_be_allocated);
  api::AdvertisedDevice healthy = other;
  healthy.healthy = true;
  EXPECT_TRUE(as_listed({healthy, own}).may_be_allocated) << "with it goes the group";
  api::AdvertisedDevice allocated = other;
  allocated.allocated = true;
  allocated.pod = "games/vm-1";
  EXPECT_EQ(as_listed({own, allocated}).user, "pod games/vm-1");
  const api::AdvertisedDevice by_number{.resource = "r", .id = "42", .iommu_group = 42, .allocated = true};
  EXPECT_EQ(as_listed({by_number}).user, "a pod");
  const api::AdvertisedDevice elsewhere{
      .resource = "r", .id = "0000:65:00.0", .iommu_group = 50, .allocated = true};
  EXPECT_EQ(as_listed({elsewhere}).user, "");
  gpu.allocation = api::Allocation::dra;
  EXPECT_EQ(as_listed({allocated}).user, "") << "the plugin has no say about GPUs for claims";
}

// Kata has a number as an ID, of a group or of a node: it marks the whole group by the count of one GPU.
TEST(ListedAs, TakesAMarkOfKataForAUseOfTheWholeGroup) {
  const auto gpu = [](const char* address, unsigned group, std::uint64_t count) {
    api::AcceleratorStatus out;
    out.address = must(vfio::PciAddress::parse(address));
    out.iommu_group = group;
    out.sanitize = api::SanitizeStatus{.count = count};
    return out;
  };
  std::vector gpus{gpu("0000:17:00.0", 42, 5), gpu("0000:18:00.0", 42, 1), gpu("0000:65:00.0", 50, 5)};
  const auto counts = [&](const std::string& id, std::uint64_t mark) {
    api::AdvertisedResources listed;
    listed.devices.push_back({.resource = "r", .id = id, .iommu_group = 42, .used_since = mark});
    std::vector<std::optional<std::uint64_t>> out;
    for (const auto& one : gpus) out.push_back(listed_as(one, listed, gpus).used_since);
    return out;
  };
  const std::optional<std::uint64_t> none;
  EXPECT_THAT(counts("42", 5), ElementsAre(5U, 1U, none));
  EXPECT_THAT(counts("0", 5), ElementsAre(5U, 1U, none)) << "vfio0 has the group 42";
  EXPECT_THAT(counts("1", 1), ElementsAre(5U, 1U, none));
  EXPECT_THAT(counts("42", 4), ElementsAre(none, none, none)) << "the plugin has not read of the reset yet";
  EXPECT_THAT(counts("0000:17:00.0", 5), ElementsAre(5U, none, none)) << "each address has its own mark";
  gpus[0].sanitize = api::SanitizeStatus{.state = SanitizeState::sanitizing, .count = 5};
  EXPECT_THAT(counts("42", 5), ElementsAre(none, none, none)) << "a round has seen it";
}

// A crash of the machine may tear the record, and an earlier version of hostd knows no newer one.
TEST_F(SanitizeLook, BeginsANewRecordInPlaceOfABadOne) {
  begin();
  for (const char* bad : {"", "{", R"({"version": 2, "policy": "required", "gpus": []})"}) {
    SCOPED_TRACE(bad);
    kernel_.file(kGpuHistoryFile, bad);
    restart();
    settle();
    EXPECT_THAT(reset_, UnorderedElementsAre(kFirst, kSecond, kThird)) << "their past is not known";
    for (const char* gpu : kGpus) EXPECT_EQ(sanitize(gpu).state, SanitizeState::available);
    EXPECT_EQ(must(kernel_.read_file(kBadGpuHistoryFile)), bad);
    reset_.clear();
  }
}

// A claim reads the record whatever the policy says.
TEST_F(SanitizeLook, BeginsANewRecordAlsoIfThePolicyIsOff) {
  kernel_.file(kGpuHistoryFile, "");
  want(kAllAway);
  start_plugin();
  settle();
  EXPECT_THAT(reset_, IsEmpty());
  EXPECT_TRUE(load_gpu_histories(kernel_));
  EXPECT_TRUE(kernel_.exists(kBadGpuHistoryFile));
}

TEST_F(SanitizeLook, KeepsABadRecordWhileThePolicyIsNotKnown) {
  begin();
  kernel_.file(kGpuHistoryFile, "");
  kernel_.file(kDesired, "{");
  restart();
  settle();
  EXPECT_FALSE(kernel_.exists(kBadGpuHistoryFile)) << "a new record of no policy would let claims pass";
  EXPECT_FALSE(load_gpu_histories(kernel_));
  want(kAllAway, 2);
  settle();
  EXPECT_TRUE(kernel_.exists(kBadGpuHistoryFile));
}

TEST_F(SanitizeLook, TellsWhyNoGpuIsSanitized) {
  begin();
  const auto break_record = [&] {
    kernel_.remove(kGpuHistoryFile);
    kernel_.link(kGpuHistoryFile, "history");
    restart();
    settle();
  };
  break_record();
  EXPECT_EQ(sanitize(kFirst).state, SanitizeState::failed);
  EXPECT_THAT(unfit(kFirst), HasSubstr("history.json: it is a symbolic link"));
  EXPECT_EQ(kernel_.link_target(kGpuHistoryFile).value_or(""), "history") << "a person may repair it";
  kernel_.remove(kGpuHistoryFile);
  settle();
  EXPECT_EQ(sanitize(kFirst).state, SanitizeState::available);

  begin("best-effort");
  break_record();
  EXPECT_FALSE(gpu(kFirst).sanitize) << "this policy keeps no GPU back";
  EXPECT_EQ(unfit(kFirst), "");
  kernel_.remove(api::kStatusFile);
  restart();
  round();
  EXPECT_EQ(unfit(kFirst), "") << "the first look has found no record";
}

TEST_F(SanitizeLook, KeepsTheFailureOfAGpuForClaimsOverABoot) {
  keys_ = "sanitize: required\n";
  want("  - {devices: all, allocation: dra}\n");
  settle();
  must(change_gpu_histories(kernel_, [this](GpuHistories& histories) {
    histories.policy = policy::Sanitize::required;
    histories.of(must(vfio::PciAddress::parse(kFirst)), gpu(kFirst).id)
        .enter(SanitizeState::failed, "no method resets it", 1);
  }));
  kernel_.remove(api::kStatusFile);
  kernel_.remove(api::kClaimableGpusFile);
  kernel_.file("proc/sys/kernel/random/boot_id", "c\n");
  restart();
  settle();
  const GpuHistories now = must(load_gpu_histories(kernel_));
  ASSERT_NE(now.find(must(vfio::PciAddress::parse(kFirst))), nullptr);
  EXPECT_EQ(now.find(must(vfio::PciAddress::parse(kFirst)))->status.state, SanitizeState::failed);
}

TEST_F(SanitizeLook, ReadsRequestsOfThatFormAlone) {
  for (const char* text :
       {"", "0000:17:00.0", "0000:17:00.0 perhaps", "17 again", "0000:17:00.0 again now"}) {
    kernel_.file(kSanitizeRequestFile, text);
    EXPECT_FALSE(read_sanitize_request(kernel_)) << text;
  }
  for (const bool accepts : {false, true}) {
    must(kernel_.remove_file(kSanitizeRequestFile));
    ask(kSecond, accepts);
    const auto read = read_sanitize_request(kernel_);
    ASSERT_TRUE(read);
    EXPECT_EQ(read->gpu.text(), kSecond);
    EXPECT_EQ(read->accepts, accepts);
  }
  const auto again = write_sanitize_request(kernel_, {});
  ASSERT_FALSE(again) << "hostd has not read the earlier one";
  EXPECT_EQ(again.error().code, Errc::refused);
}

/// The first GPU is an H100, and the desired state has a confidential mode.
class CcModeLook : public SanitizeLook {
 protected:
  CcModeLook() {
    kernel_.add_function({.address = kFirst,
                          .ids = "10de:2331",
                          .subsystem_ids = "10de:16c1",
                          .class_code = 0x030200,
                          .group = 5,
                          .driver = "nvidia"});
    kernel_.on_call([this](const LibraryCall& call) {
      if (call.name != vfio::kRegisterLibrary || call.request.find(kFirst) == std::string::npos)
        return std::string(R"({"functions": [], "faults": []})");
      return fmt::format(R"({{"functions": [{{"address": "{}", "registers": {}}}], "faults": []}})", kFirst,
                         is_ppcie_ ? R"({"chip": "gh100", "cc_mode": "off", "ppcie": true})"
                                   : R"({"chip": "gh100", "cc_mode": ")" + mode_ + "\"}");
    });
    settings_.sets_cc_mode = true;
    settings_.set_mode = [this](HostWriter&, HostFs&, const vfio::PciAddress& gpu, vfio::WantedMode mode) {
      const std::string word(word_for(vfio::kWantedModes, mode));
      set_.push_back(gpu.text() + " " + word);
      if (fault_.empty()) mode_ = word;
      if (is_left_open_)
        kernel_.file(vfio::kModeRecordFile, vfio::mode_record_text({{{.address = gpu, .ids = "10de:2331"}}}));
      return vfio::ModeOutcome{.problem = fault_, .refused = is_refused_};
    };
    const auto sanitize = settings_.sanitize;
    settings_.sanitize = [this, sanitize](HostWriter& writer, const HostFs& host,
                                          const vfio::PciAddress& gpu) {
      Sanitizing out = sanitize(writer, host, gpu);
      if (gpu.text() == kFirst && out.is_reset())
        out.registers = vfio::RegisterFacts{.chip = "gh100",
                                            .cc_mode = mode_ == "on" ? vfio::CcMode::on : vfio::CcMode::off,
                                            .ppcie = is_ppcie_};
      return out;
    };
    cc_mode_ = vfio::WantedMode::on;
    restart();
  }
  std::string published_mode() const {
    const auto registers = gpu(kFirst).registers;
    return registers ? std::string(registers->facts.mode()) : "not read";
  }

  std::string mode_ = "off";      ///< of the first GPU's register
  bool is_ppcie_ = false;         ///< the register has protected PCIe
  std::string fault_;             ///< why no mode can be set
  bool is_refused_ = false;       ///< nothing was tried
  bool is_left_open_ = false;     ///< the change stays recorded
  std::vector<std::string> set_;  ///< "0000:05:00.0 on", in this order
};

TEST_F(CcModeLook, SetsTheModeOfAFreeGpuOnce) {
  begin("off");
  settle();
  EXPECT_THAT(set_, ElementsAre(std::string(kFirst) + " on")) << "GPUs without modes are left alone";
  EXPECT_EQ(published_mode(), "on");
  EXPECT_EQ(sanitize(kFirst).state, SanitizeState::available);
  EXPECT_EQ(sanitize(kFirst).result, SanitizeResult::proven);
  kernel_.forget_changes();
  settle();
  EXPECT_THAT(kernel_.writes(), IsEmpty()) << "a second run writes nothing";
  EXPECT_THAT(set_, SizeIs(1));
}

TEST_F(CcModeLook, SetsNoModeWithoutTheOptionOrADesiredMode) {
  settings_.sets_cc_mode = false;
  restart();
  begin("off");
  EXPECT_THAT(set_, IsEmpty());
  EXPECT_FALSE(gpu(kFirst).sanitize);
  settings_.sets_cc_mode = true;
  cc_mode_.reset();
  restart();
  begin();
  EXPECT_THAT(set_, IsEmpty());
}

TEST_F(CcModeLook, WaitsForTheEndOfAUse) {
  cc_mode_.reset();
  begin();
  allocated_.insert(kFirst);
  plugin_follows();
  settle();
  cc_mode_ = vfio::WantedMode::on;
  want(kAllAway, 2);
  settle();
  EXPECT_EQ(sanitize(kFirst).state, SanitizeState::in_use);
  EXPECT_THAT(set_, IsEmpty());
  allocated_.clear();
  plugin_follows();
  settle();
  settle();
  EXPECT_THAT(set_, SizeIs(1));
  EXPECT_EQ(published_mode(), "on");
}

TEST_F(CcModeLook, TriesAModeOnceAndTellsWhyItWasNotSet) {
  fault_ = "0000:05:00.0: its firmware forbids it";
  begin("best-effort");
  settle();
  EXPECT_THAT(set_, SizeIs(1)) << "no loop";
  EXPECT_EQ(sanitize(kFirst).state, SanitizeState::available);
  EXPECT_EQ(sanitize(kFirst).result, SanitizeResult::unproven);
  EXPECT_EQ(sanitize(kFirst).detail, "its mode was not set: 0000:05:00.0: its firmware forbids it");

  cc_mode_ = vfio::WantedMode::devtools;
  want(kAllAway, 2);
  settle();
  settle();
  EXPECT_THAT(set_, ElementsAre(std::string(kFirst) + " on", std::string(kFirst) + " devtools"));
}

TEST_F(CcModeLook, TriesARefusedModeAgainLater) {
  fault_ = "another ferry is changing this host";
  is_refused_ = true;
  begin("best-effort");
  settle();
  EXPECT_THAT(set_, SizeIs(1)) << "not at once";
  fault_.clear();
  is_refused_ = false;
  now_ += std::chrono::minutes(6);
  settle();
  settle();
  EXPECT_THAT(set_, SizeIs(2));
  EXPECT_EQ(published_mode(), "on");
}

TEST_F(CcModeLook, ResetsNoGpuWhoseModeIsLeftOpen) {
  fault_ = "0000:05:00.0 did not come back";
  is_left_open_ = true;
  keys_ = "sanitize: best-effort\n";
  want(kAllAway);
  start_plugin();
  settle();
  EXPECT_THAT(set_, SizeIs(1));
  EXPECT_THAT(reset_, UnorderedElementsAre(kSecond, kThird));
  EXPECT_EQ(sanitize(kFirst).detail, "its mode is left open: 0000:05:00.0 did not come back");
  EXPECT_THAT(unfit(kFirst), HasSubstr("has not ended"));
}

TEST_F(CcModeLook, KeepsAGpuOfAnotherModeBackWhereAProofIsRequired) {
  fault_ = "no";
  begin("required");
  settle();
  EXPECT_EQ(sanitize(kFirst).state, SanitizeState::failed);
  EXPECT_THAT(unfit(kFirst), HasSubstr("its mode was not set: no"));
  ask(kFirst, true);
  settle();
  EXPECT_EQ(sanitize(kFirst).state, SanitizeState::available) << "an administrator may accept it";
  EXPECT_THAT(set_, SizeIs(1));
}

TEST_F(CcModeLook, LeavesABoardInProtectedPcieAlone) {
  is_ppcie_ = true;
  begin();
  settle();
  EXPECT_THAT(set_, IsEmpty());
  EXPECT_EQ(published_mode(), "ppcie");
}

}  // namespace
}  // namespace ferry::host
