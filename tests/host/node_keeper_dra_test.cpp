// SPDX-License-Identifier: Apache-2.0
// The rounds of hostd: GPUs that a policy gives to ResourceClaims.
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "api/claimable_gpus.h"
#include "api/host_status.h"
#include "host/claims/claim_record.h"
#include "tests/host/keeper_node.h"
#include "tests/support/fake_vendor_vfio.h"
#include "tests/support/log_of.h"
#include "tests/support/must.h"

namespace ferry::host {
namespace {

using namespace std::chrono_literals;
using test::must;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr const char* kFirstForDra =
    "  - {devices: all, mode: passthrough}\n  - {devices: [0], allocation: dra}\n";
constexpr const char* kFile = "run/ferry/claims/gpus.json";

class KeeperOfClaimableGpusTest : public NodeKeeperTest {
 protected:
  /// The round after the withdrawal gives it to DRA.
  void give_first_to_dra() {
    want(kFirstForDra);
    round();
    round();
  }
  std::vector<api::ClaimableGpu> claimable() const {
    const auto text = kernel_.read_file(kFile);
    return text ? must(api::read_claimable_gpus(*text)) : std::vector<api::ClaimableGpu>();
  }
  std::vector<std::string> addresses() const {
    std::vector<std::string> out;
    for (const api::ClaimableGpu& one : claimable()) out.push_back(one.address.text());
    return out;
  }
  static vfio::PciAddress address(const char* text) { return must(vfio::PciAddress::parse(text)); }
};

TEST_F(KeeperOfClaimableGpusTest, LeavesAGpuForDraAsItIs) {
  want(kFirstForDra);
  const auto first = round();
  EXPECT_EQ(first.phase, api::NodePhase::applying) << "the withdrawal is published before DRA has the GPU";
  EXPECT_TRUE(first.unfinished);
  EXPECT_EQ(first.again, now_ + 1s);
  EXPECT_EQ(gpu(kFirst).state, api::GpuState::pending);
  EXPECT_THAT(addresses(), IsEmpty());

  EXPECT_EQ(round().phase, api::NodePhase::ready);
  EXPECT_THAT(drivers(), ElementsAre("nvidia", "vfio-pci", "vfio-pci"));
  EXPECT_EQ(gpu(kFirst).allocation, api::Allocation::dra);
  EXPECT_EQ(gpu(kFirst).state, api::GpuState::ready);
  EXPECT_EQ(gpu(kFirst).desired, std::nullopt);
  EXPECT_EQ(gpu(kSecond).allocation, api::Allocation::device_plugin);
  EXPECT_THAT(unavailable(), ElementsAre(kFirst));
  EXPECT_THAT(addresses(), ElementsAre(kFirst));
  EXPECT_TRUE(claimable().at(0).for_dra);
  EXPECT_EQ(claimable().at(0).framework, api::VgpuFramework::mdev);
  EXPECT_THAT(claimable().at(0).types, Not(IsEmpty()));

  kernel_.forget_changes();
  EXPECT_EQ(round().phase, api::NodePhase::ready);
  EXPECT_THAT(kernel_.changes(), IsEmpty()) << "no file is written without a change";
}

// -- devices of claims that other programs take away --

class KeeperOfLostDevicesTest : public KeeperOfClaimableGpusTest {
 protected:
  static constexpr const char* kUuid = "3f1c6a52-6b1f-4c6a-9b54-0d5d1a9f0c11";

  /// The first GPU is for claims, and claim "a" has a vGPU of it.
  void SetUp() override {
    give_first_to_dra();
    mdev_.add_device(kFirst, "nvidia-230", kUuid);
    claimed_ = {address(kFirst)};
    prepared_ = {{.uid = "a",
                  .space = "studio",
                  .name = "render",
                  .phase = ClaimPhase::done,
                  .devices = {{.request = {.gpu = address(kFirst), .type = "nvidia-230"},
                               .gpus = {{.address = address(kFirst)}},
                               .result = {.mdev_uuid = kUuid}}}}};
    round();
    ASSERT_THAT(lost(), IsEmpty());
  }
  std::vector<std::string> lost() const { return claimable().at(0).lost_claims; }
};

TEST_F(KeeperOfLostDevicesTest, NamesTheClaimOfAVgpuThatIsRemoved) {
  mdev_.remove_device(kFirst, kUuid);
  const test::LogOf log;
  EXPECT_EQ(round().phase, api::NodePhase::ready) << "no fault of the GPU";
  EXPECT_THAT(lost(), ElementsAre("a"));
  EXPECT_EQ(claimable().at(0).health, api::GpuHealth::ready);
  EXPECT_THAT(log.text(), HasSubstr("claim studio/render: its device of GPU 0000:05:00.0 is gone"));
  round();
  EXPECT_EQ(log.text().find("is gone"), log.text().rfind("is gone")) << "once";
  mdev_.add_device(kFirst, "nvidia-230", kUuid);  // the next prepare
  round();
  EXPECT_THAT(lost(), IsEmpty());
}

TEST_F(KeeperOfLostDevicesTest, NamesTheClaimOfAVgpuThatHasBecomeAnother) {
  mdev_.remove_device(kFirst, kUuid);
  mdev_.add_device(kFirst, "nvidia-231", kUuid);
  round();
  EXPECT_THAT(lost(), ElementsAre("a"));
}

TEST_F(KeeperOfLostDevicesTest, NamesTheClaimOfAWholeGpuThatIsNoLongerOnVfio) {
  prepared_[0].devices[0].request.type = "";
  mdev_.remove_device(kFirst, kUuid);
  round();
  EXPECT_THAT(lost(), ElementsAre("a")) << "it is on nvidia";
}

TEST_F(KeeperOfLostDevicesTest, NamesAGpuOfAWholeDeviceThatIsUnplugged) {
  prepared_[0].devices[0].request.type = "";
  prepared_[0].devices[0].gpus = {{.address = address(kFirst)}, {.address = address(kThird)}};
  round();
  EXPECT_THAT(claimable().at(0).unplugged, IsEmpty());
  kernel_.remove_function(kThird);
  round();
  ASSERT_THAT(claimable().at(0).unplugged, ElementsAre(kThird));
  prepared_.clear();
  round();
  EXPECT_THAT(claimable().at(0).unplugged, IsEmpty());
}

TEST_F(KeeperOfLostDevicesTest, TakesNoClaimThatIsUndoneMeanwhileForLost) {
  mdev_.remove_device(kFirst, kUuid);
  undone_after_reads_ = 1;
  round();
  EXPECT_THAT(lost(), IsEmpty());
}

// -- virtual functions for claims --

/// Beside the T4s one that makes its vGPUs on virtual functions, and has none.
class KeeperOfFunctionsTest : public KeeperOfClaimableGpusTest {
 protected:
  static constexpr const char* kFourth = "0000:08:00.0";
  static constexpr const char* kForDra = "  - {address: \"0000:08:00.0\", allocation: dra}\n";
  static constexpr const char* kToTheHost = "  - {address: \"0000:08:00.0\", mode: host}\n";

  KeeperOfFunctionsTest() {
    kernel_.add_driver({.name = "nvidia", .ids = {"10de:1eb8"}, .sriov = true});
    kernel_.add_function(test::kinds::kTeslaT4Board, kFourth, 8, "nvidia", 4);
    kernel_.file("proc/driver/nvidia/gpus/0000:08:00.0/unbindLock", "0\n");
    vendor_.add_gpu(kFourth, test::t4_types());
  }
  void settle(const std::string& items, std::uint64_t generation = 1) {
    want(items, generation);
    rounds();
    round();
  }
  std::size_t functions() const { return kernel_.vfs_of(kFourth).size(); }
  std::vector<std::string> made() const { return must(load_claim_record(kernel_)).made_functions; }

  test::FakeVendorVfio vendor_{kernel_};
};

TEST_F(KeeperOfFunctionsTest, MakesThemForAGpuThatEntersDra) {
  want(kForDra);
  rounds();
  EXPECT_EQ(round().phase, api::NodePhase::ready);
  EXPECT_EQ(functions(), 4U);
  EXPECT_THAT(made(), ElementsAre(kFourth));
  round();
  ASSERT_THAT(addresses(), ElementsAre(kFourth));
  EXPECT_EQ(claimable().at(0).framework, api::VgpuFramework::vendor_vfio);
  EXPECT_THAT(claimable().at(0).types, Not(IsEmpty()));
  kernel_.forget_changes();
  EXPECT_EQ(round().again, std::nullopt);
  EXPECT_THAT(kernel_.changes(), IsEmpty());
}

TEST_F(KeeperOfFunctionsTest, MakesThemAgainAfterABoot) {
  settle(kForDra);
  ASSERT_EQ(functions(), 4U);
  kernel_.enable_vfs(kFourth, 0);
  kernel_.file("proc/sys/kernel/random/boot_id", "c\n");
  NodeKeeper next = make_keeper();
  next.round();
  EXPECT_EQ(functions(), 4U);
}

TEST_F(KeeperOfFunctionsTest, MakesNoneThatNoClaimCanUse) {
  want("  - {address: \"0000:08:00.0\", allocation: dra, allow: [whole]}\n");
  rounds();
  round();
  EXPECT_EQ(functions(), 0U);
  ASSERT_THAT(addresses(), ElementsAre(kFourth));
  missing_functions_ = {{.gpu = address(kFourth), .functions = 2}};
  round();
  EXPECT_EQ(functions(), 2U) << "those that a claim has cost it come back";
  EXPECT_THAT(made(), IsEmpty());
}

TEST_F(KeeperOfFunctionsTest, MakesNoneOfAGpuThatIsInUse) {
  want(kForDra);
  claimed_ = {address(kFourth)};
  rounds();
  round();
  EXPECT_EQ(functions(), 0U);
  claimed_.clear();
  round();
  EXPECT_EQ(functions(), 4U);
}

TEST_F(KeeperOfFunctionsTest, ShowsThatThereAreNone) {
  kernel_.remove("sys/devices/pci0000:00/0000:08:00.0/sriov_numvfs");
  settle(kForDra);
  const auto failed = round();
  EXPECT_EQ(failed.phase, api::NodePhase::failed);
  ASSERT_TRUE(failed.again);
  EXPECT_GT(*failed.again, now_);
  EXPECT_THAT(gpu(kFourth).reason, HasSubstr("it has no virtual functions, which vGPUs for claims need: "));
  EXPECT_EQ(claimable().at(0).vgpu_reason, gpu(kFourth).reason);
  EXPECT_EQ(claimable().at(0).health, api::GpuHealth::ready) << "claims can have it whole";
  kernel_.file("sys/devices/pci0000:00/0000:08:00.0/sriov_numvfs", "0\n");
  want("  - {address: \"0000:08:00.0\", allocation: dra, allow: [whole]}\n", 2);
  EXPECT_EQ(rounds().phase, api::NodePhase::ready);
}

TEST_F(KeeperOfFunctionsTest, StopsAfterThreeFailures) {
  kernel_.remove("sys/devices/pci0000:00/0000:08:00.0/sriov_numvfs");
  want(kForDra);
  rounds();
  for (int i = 0; i < 10; ++i) {
    now_ += 10min;
    round();
  }
  EXPECT_THAT(gpu(kFourth).reason, HasSubstr("this has failed three times"));
  kernel_.forget_changes();
  now_ += 24h;
  round();
  EXPECT_THAT(kernel_.changes(), IsEmpty());
  kernel_.file("sys/devices/pci0000:00/0000:08:00.0/sriov_numvfs", "0\n");
  NodeKeeper next = make_keeper();
  next.round();
  EXPECT_EQ(functions(), 4U) << "a new hostd tries again";
}

TEST_F(KeeperOfFunctionsTest, TakesNoFunctionsAwayThatCameWhileItsOwnWereGone) {
  settle(kForDra);
  ASSERT_THAT(made(), ElementsAre(kFourth));
  kernel_.enable_vfs(kFourth, 0);
  settle(kToTheHost, 2);
  EXPECT_THAT(made(), IsEmpty());
  kernel_.enable_vfs(kFourth, 4);
  rounds();
  round();
  EXPECT_EQ(functions(), 4U);
}

TEST_F(KeeperOfFunctionsTest, TakesItsOwnAwayWhenTheGpuLeavesDra) {
  settle(kForDra);
  ASSERT_EQ(functions(), 4U);
  users_.held = {{"0000:08:00.5", vm(412)}};
  settle(kToTheHost, 2);
  EXPECT_EQ(functions(), 4U) << "one is in use";
  users_.held.clear();
  now_ += 10min;
  rounds();
  EXPECT_EQ(functions(), 0U);
  EXPECT_THAT(made(), IsEmpty());
  EXPECT_EQ(round().again, std::nullopt);
}

TEST_F(KeeperOfFunctionsTest, LeavesThoseOfOthersWhenTheGpuLeavesDra) {
  kernel_.enable_vfs(kFourth, 4);
  settle(kForDra);
  EXPECT_THAT(made(), IsEmpty());
  settle(kToTheHost, 2);
  EXPECT_EQ(functions(), 4U);
}

TEST_F(KeeperOfClaimableGpusTest, AsksForPlacementsNowAndThen) {
  constexpr const char* kDivided = "0000:0a:00.0";
  kernel_.add_function(test::kinds::kTeslaT4Board, kDivided, 10, "nvidia", 4);
  mdev_.add_vf_parents(kDivided);
  kernel_.enable_vfs(kDivided, 4);
  want("  - {address: \"0000:0a:00.0\", allocation: dra, mixed-sizes: true}\n");
  round();
  const auto asked = round();
  EXPECT_EQ(asked.phase, api::NodePhase::ready);
  EXPECT_EQ(asked.again, now_ + 5min) << "this host has no library";
  ASSERT_THAT(addresses(), ElementsAre(kDivided));
  EXPECT_TRUE(claimable().at(0).mixed_sizes);
  EXPECT_EQ(claimable().at(0).health, api::GpuHealth::ready) << "claims can have it whole";
  const auto next = round();
  EXPECT_EQ(next.again, asked.again) << "it is not asked again before";
  kernel_.file(kDesired, "{");
  now_ += 6min;
  const auto failed = round();
  EXPECT_EQ(failed.phase, api::NodePhase::failed);
  ASSERT_TRUE(failed.again);
  EXPECT_GT(*failed.again, now_) << "a question that is due makes no row of rounds without a pause";
}

TEST_F(KeeperOfClaimableGpusTest, ComesAgainToADriverThatListsItsTypesLate) {
  kernel_.file("proc/driver/nvidia/gpus/0000:05:00.0/unbindLock", "0\n");
  kernel_.remove("sys/class/mdev_bus/0000:05:00.0");
  want(kFirstForDra);
  round();
  auto last = round();
  EXPECT_EQ(last.phase, api::NodePhase::ready);
  EXPECT_EQ(last.again, now_ + 10s);
  ASSERT_THAT(addresses(), ElementsAre(kFirst));
  EXPECT_THAT(claimable().at(0).types, IsEmpty());
  now_ += 1min;
  last = round();
  EXPECT_EQ(last.again, now_ + 61s) << "as long as the wait so far";
  now_ += 1h;
  last = round();
  EXPECT_EQ(last.again, now_ + 5min);
  mdev_.add_parent(kFirst);
  EXPECT_EQ(round().again, std::nullopt);
  EXPECT_THAT(claimable().at(0).types, Not(IsEmpty()));
  EXPECT_EQ(claimable().at(0).vgpu_reason, "");
}

TEST_F(KeeperOfClaimableGpusTest, WritesNoFileWithoutSuchAPolicy) {
  want(kAllAway);
  rounds();
  EXPECT_FALSE(kernel_.exists(kFile));
  EXPECT_EQ(gpu(kFirst).allocation, api::Allocation::device_plugin);
}

TEST_F(KeeperOfClaimableGpusTest, WaitsForThePlugin) {
  start_plugin_with_all();
  plugin_follows();
  want(kFirstForDra);
  EXPECT_EQ(round().phase, api::NodePhase::applying);
  EXPECT_EQ(round().phase, api::NodePhase::applying) << "it has not answered";
  EXPECT_THAT(addresses(), IsEmpty());
  EXPECT_EQ(gpu(kFirst).allocation, api::Allocation::device_plugin);
  ASSERT_TRUE(plugin_follows());
  EXPECT_EQ(round().phase, api::NodePhase::ready);
  EXPECT_THAT(addresses(), ElementsAre(kFirst));
  EXPECT_EQ(kernel_.driver_of(kFirst), "vfio-pci") << "its driver stays";
}

TEST_F(KeeperOfClaimableGpusTest, IsBlockedIfThePluginDoesNotAnswer) {
  start_plugin_with_all();
  silent_ = true;
  want(kFirstForDra);
  round();
  now_ += 31s;
  EXPECT_EQ(round().phase, api::NodePhase::blocked);
  EXPECT_EQ(gpu(kFirst).state, api::GpuState::blocked);
  EXPECT_THAT(gpu(kFirst).hint, HasSubstr("ferry plugin"));
  EXPECT_EQ(gpu(kFirst).allocation, api::Allocation::device_plugin);
  silent_ = false;
  EXPECT_EQ(rounds().phase, api::NodePhase::ready);
  EXPECT_THAT(addresses(), ElementsAre(kFirst));
}

TEST_F(KeeperOfClaimableGpusTest, WaitsForThePodThatHasTheGpu) {
  start_plugin_with_all();
  allocated_ = {kFirst};
  users_.held = {{kFirst, vm(412)}};
  plugin_follows();
  want(kFirstForDra);
  const auto blocked = rounds();
  EXPECT_EQ(blocked.phase, api::NodePhase::blocked);
  EXPECT_THAT(blocked.processes, ElementsAre(412));
  EXPECT_EQ(gpu(kFirst).state, api::GpuState::blocked);
  EXPECT_THAT(gpu(kFirst).reason, HasSubstr("VM tenant (pid 412)"));
  EXPECT_THAT(gpu(kFirst).users, Not(IsEmpty()));
  EXPECT_EQ(gpu(kFirst).allocation, api::Allocation::device_plugin);
  EXPECT_THAT(unavailable(), Contains(kFirst)) << "no other pod gets it";
  EXPECT_THAT(addresses(), IsEmpty());
  EXPECT_THAT(drivers(), ElementsAre("vfio-pci", "vfio-pci", "vfio-pci")) << "the others do not wait";

  users_.held.clear();
  allocated_.clear();
  plugin_follows();
  EXPECT_EQ(rounds().phase, api::NodePhase::ready);
  EXPECT_THAT(addresses(), ElementsAre(kFirst));
}

TEST_F(KeeperOfClaimableGpusTest, WaitsForVgpusOfAnEarlierPolicy) {
  want("  - {devices: [0], mode: vgpu, vgpu-devices: {T4-4Q: 1}}\n");
  rounds();
  want("  - {devices: [0], allocation: dra}\n");
  rounds();
  EXPECT_EQ(rounds().phase, api::NodePhase::blocked);
  EXPECT_THAT(gpu(kFirst).reason, HasSubstr("has a vGPU that no claim made"));
  EXPECT_THAT(mdev_.devices_on(kFirst), Not(IsEmpty()));
  want("  - {devices: [0], mode: host}\n");
  rounds();
  want("  - {devices: [0], allocation: dra}\n");
  rounds();
  EXPECT_EQ(rounds().phase, api::NodePhase::ready);
  EXPECT_EQ(gpu(kFirst).allocation, api::Allocation::dra);
}

TEST_F(KeeperOfClaimableGpusTest, KeepsAGpuWithDraWhileAClaimHasIt) {
  give_first_to_dra();
  claimed_ = {address(kFirst)};
  want(kAllAway);
  EXPECT_EQ(round().phase, api::NodePhase::blocked);
  EXPECT_EQ(kernel_.driver_of(kFirst), "nvidia") << "nothing is bound under a claim";
  EXPECT_EQ(gpu(kFirst).allocation, api::Allocation::dra);
  EXPECT_EQ(gpu(kFirst).desired, api::Mode::passthrough);
  EXPECT_EQ(gpu(kFirst).reason, "a ResourceClaim has it");
  EXPECT_THAT(unavailable(), ElementsAre(kFirst));
  ASSERT_THAT(addresses(), ElementsAre(kFirst));
  EXPECT_FALSE(claimable().at(0).for_dra) << "no further claim gets it";

  claimed_.clear();
  EXPECT_EQ(rounds().phase, api::NodePhase::ready);
  EXPECT_EQ(kernel_.driver_of(kFirst), "vfio-pci");
  EXPECT_EQ(gpu(kFirst).allocation, api::Allocation::device_plugin);
  EXPECT_THAT(unavailable(), IsEmpty());
  EXPECT_TRUE(kernel_.exists(kFile)) << "ferry dra reads there that it has no GPU";
  EXPECT_THAT(claimable(), IsEmpty());
}

TEST_F(KeeperOfClaimableGpusTest, KeepsClaimsWithoutADesiredState) {
  give_first_to_dra();
  claimed_ = {address(kFirst)};
  kernel_.remove(kDesired);
  EXPECT_EQ(round().phase, api::NodePhase::idle);
  EXPECT_EQ(gpu(kFirst).allocation, api::Allocation::dra);
  EXPECT_THAT(unavailable(), ElementsAre(kFirst));
  claimed_.clear();
  round();
  EXPECT_EQ(gpu(kFirst).allocation, api::Allocation::device_plugin);
  EXPECT_THAT(unavailable(), IsEmpty());
}

TEST_F(KeeperOfClaimableGpusTest, KeepsAClaimOfAnotherVendorsGpuThatNoPolicyNames) {
  constexpr const char* kOther = "0000:0a:00.0";
  kernel_.add_driver({.name = "amdgpu", .ids = {"1002:74a1"}});
  kernel_.add_function({"1002:74a1", 0x030200}, kOther, 10, "amdgpu");
  want("  - {address: \"0000:0a:00.0\", allocation: dra}\n");
  round();
  EXPECT_EQ(round().phase, api::NodePhase::ready);
  ASSERT_THAT(addresses(), ElementsAre(kOther));
  claimed_ = {address(kOther)};
  want(kAllAway);
  round();
  EXPECT_THAT(addresses(), ElementsAre(kOther)) << "ferry dra would have the pod of the claim deleted";
  EXPECT_EQ(kernel_.driver_of(kOther), "amdgpu");
  kernel_.remove(kDesired);
  EXPECT_EQ(round().phase, api::NodePhase::idle);
  ASSERT_THAT(addresses(), ElementsAre(kOther));
  EXPECT_FALSE(claimable().at(0).for_dra);
  EXPECT_THAT(unavailable(), ElementsAre(kOther));
  claimed_.clear();
  round();
  EXPECT_THAT(addresses(), IsEmpty());
}

TEST_F(KeeperOfClaimableGpusTest, ShowsAGpuThatLacksVirtualFunctions) {
  give_first_to_dra();
  missing_functions_ = {{.gpu = address(kFirst), .functions = 4, .reason = "busy"}};
  const auto failed = round();
  EXPECT_EQ(failed.phase, api::NodePhase::failed);
  EXPECT_TRUE(failed.again);
  EXPECT_EQ(gpu(kFirst).state, api::GpuState::failed);
  EXPECT_EQ(gpu(kFirst).reason, "it has 0 of the 4 virtual functions that it had before a claim: busy");
  EXPECT_THAT(gpu(kFirst).hint, HasSubstr("sriov-manage"));
  EXPECT_EQ(claimable().at(0).vgpu_reason, gpu(kFirst).reason);
  EXPECT_EQ(claimable().at(0).health, api::GpuHealth::ready);
  missing_functions_.clear();
  EXPECT_EQ(rounds().phase, api::NodePhase::ready);
  EXPECT_EQ(claimable().at(0).vgpu_reason, "");
}

TEST_F(KeeperOfClaimableGpusTest, ShowsClaimsDuringTheBackOffOfAnotherGpu) {
  give_first_to_dra();
  kernel_.remove("sys/bus/pci/drivers/vfio-pci/unbind");
  want("  - {devices: [0], allocation: dra}\n  - {devices: [1], mode: host}\n");
  const auto failed = round();
  EXPECT_EQ(failed.phase, api::NodePhase::failed);
  ASSERT_TRUE(failed.again);
  ASSERT_THAT(addresses(), ElementsAre(kFirst));
  missing_functions_ = {{.gpu = address(kFirst), .functions = 4, .reason = "busy"}};
  kernel_.forget_changes();
  EXPECT_EQ(round().again, failed.again);
  EXPECT_THAT(host_writes(), IsEmpty());
  EXPECT_THAT(claimable().at(0).vgpu_reason, HasSubstr("0 of the 4"));
}

TEST_F(KeeperOfClaimableGpusTest, ShowsThatTheRecordOfClaimsIsUnreadable) {
  const Error broken{.code = make_error_code(Errc::malformed_host),
                     .message = "/run/ferry/hostd/claims.json: not JSON",
                     .hint = "remove it"};
  give_first_to_dra();
  claimed_ = {address(kFirst)};
  claims_fault_ = broken;
  EXPECT_EQ(round().phase, api::NodePhase::failed);
  ASSERT_TRUE(state().error);
  EXPECT_EQ(state().error->message, broken.message);
  EXPECT_EQ(state().error->hint, broken.hint);
  EXPECT_EQ(gpu(kFirst).allocation, api::Allocation::dra);
  kernel_.remove(kDesired);
  EXPECT_EQ(round().phase, api::NodePhase::failed) << "also without a desired state";
  EXPECT_EQ(state().error->message, broken.message);
  claims_fault_.reset();
  EXPECT_EQ(round().phase, api::NodePhase::idle);
  EXPECT_FALSE(state().error);
}

TEST_F(KeeperOfClaimableGpusTest, ChangesNothingWhileItKnowsNoClaims) {
  give_first_to_dra();
  claims_error_ = Error{.code = make_error_code(Errc::malformed_host),
                        .message = "/run/ferry/hostd/claims.json: not JSON",
                        .hint = "remove it"};
  want(kAllAway);
  EXPECT_EQ(round().phase, api::NodePhase::failed);
  EXPECT_EQ(kernel_.driver_of(kFirst), "nvidia") << "a claim may have it";
  ASSERT_TRUE(state().error);
  EXPECT_EQ(state().error->message, "/run/ferry/hostd/claims.json: not JSON");
  EXPECT_THAT(unavailable(), ElementsAre(kFirst));
  NodeKeeper next = make_keeper();
  EXPECT_EQ(next.round().phase, api::NodePhase::failed) << "after a restart, too";
  EXPECT_EQ(kernel_.driver_of(kFirst), "nvidia");
  EXPECT_THAT(unavailable(), ElementsAre(kFirst));
  claims_error_.reset();
  EXPECT_EQ(rounds().phase, api::NodePhase::ready);
  EXPECT_EQ(kernel_.driver_of(kFirst), "vfio-pci");
}

TEST_F(KeeperOfClaimableGpusTest, KeepsTheAllocationWhileThePolicyIsUnreadable) {
  give_first_to_dra();
  kernel_.file(kDesired, "{");
  EXPECT_EQ(round().phase, api::NodePhase::failed);
  EXPECT_EQ(gpu(kFirst).allocation, api::Allocation::dra);
  EXPECT_THAT(unavailable(), ElementsAre(kFirst));
  EXPECT_THAT(addresses(), ElementsAre(kFirst));
}

TEST_F(KeeperOfClaimableGpusTest, KeepsTheGpuUnavailableWhenItEnds) {
  give_first_to_dra();
  must(keeper_.end());
  EXPECT_THAT(unavailable(), ElementsAre(kFirst));
}

TEST_F(KeeperOfClaimableGpusTest, KnowsItsGpusAfterARestart) {
  give_first_to_dra();
  users_.held = {{kFirst, vm(412)}};
  claimed_ = {address(kFirst)};
  NodeKeeper next = make_keeper();
  EXPECT_EQ(next.round().phase, api::NodePhase::ready) << "the user has it by a claim";
  EXPECT_EQ(gpu(kFirst).allocation, api::Allocation::dra);
  EXPECT_THAT(unavailable(), ElementsAre(kFirst));
}

TEST_F(KeeperOfClaimableGpusTest, KeepsItsGpusUnavailableIfThePolicyIsRefusedAfterARestart) {
  give_first_to_dra();
  claimed_ = {address(kFirst)};
  kernel_.add_function(test::kinds::kTeslaT4Board, "0000:08:00.0", 5, "nvidia");
  want("  - {address: \"0000:05:00.0\", allocation: dra}\n");
  NodeKeeper next = make_keeper();
  EXPECT_EQ(next.round().phase, api::NodePhase::blocked);
  EXPECT_THAT(unavailable(), Contains(kFirst)) << "the plugin would give a claim's GPU to a pod";
  EXPECT_EQ(gpu(kFirst).allocation, api::Allocation::dra);
  EXPECT_THAT(addresses(), ElementsAre(kFirst));
}

TEST_F(KeeperOfClaimableGpusTest, KeepsItsGpusUnavailableIfItsFirstRoundFails) {
  give_first_to_dra();
  claimed_ = {address(kFirst)};
  kernel_.remove(kDesired);
  kernel_.file("run/ferry/hostd/stopped-services.json",
               R"({"version":1,"boot_id":"b","services":{"nvidia-dcgm.service":"to start"}})");
  services_.fails = true;
  NodeKeeper next = make_keeper();
  EXPECT_EQ(next.round().phase, api::NodePhase::failed);
  EXPECT_THAT(unavailable(), ElementsAre(kFirst));
  EXPECT_EQ(gpu(kFirst).allocation, api::Allocation::dra);
  must(next.end());
  EXPECT_THAT(unavailable(), ElementsAre(kFirst));
}

TEST_F(KeeperOfClaimableGpusTest, RemembersTheTypesOfAnEmptyGpu) {
  want("  - {devices: [0], allocation: dra, allow: [whole, \"T4-4Q\"]}\n");
  round();
  round();
  const std::vector<api::ClaimableGpu> empty = claimable();
  ASSERT_EQ(empty.size(), 1U);
  for (const api::VgpuType& type : empty.at(0).types) EXPECT_EQ(type.allowed, type.short_name == "T4-4Q");
  claimed_ = {address(kFirst)};
  mdev_.add_device(kFirst, "nvidia-232", "5b6c0f0e-3b1d-4f0e-9a57-2f6f5f1f7a10");
  round();
  EXPECT_EQ(claimable(), empty);
  EXPECT_THAT(unavailable(), Contains("5b6c0f0e-3b1d-4f0e-9a57-2f6f5f1f7a10"));
}

TEST_F(KeeperOfClaimableGpusTest, RefusesAGroupWithTwoAllocations) {
  kernel_.add_function(test::kinds::kTeslaT4Board, "0000:08:00.0", 5, "nvidia");
  want("  - {address: \"0000:05:00.0\", allocation: dra}\n");
  EXPECT_EQ(round().phase, api::NodePhase::blocked);
  EXPECT_EQ(state().error.value_or(api::StatusError()).message,
            "0000:05:00.0 is for DRA and 0000:08:00.0 is not, but they share an IOMMU group");
  EXPECT_THAT(addresses(), IsEmpty());
}

TEST_F(KeeperOfClaimableGpusTest, RefusesANameOfADeviceClassAndOfThePlugin) {
  resources_.of_gpu = [](const vfio::PciFunction&) { return std::string("nvidia.com/TU104GL_TESLA_T4"); };
  resources_.of_vgpus = [](const std::string& type) { return "nvidia.com/" + type; };
  resources_.classes = {{.resource = "nvidia.com/TU104GL_TESLA_T4", .device = "10de:1eb8"}};
  want(kFirstForDra);
  EXPECT_EQ(round().phase, api::NodePhase::blocked);
  EXPECT_THAT(state().error.value_or(api::StatusError()).message,
              HasSubstr("nvidia.com/TU104GL_TESLA_T4 has two owners: a DeviceClass, for claims of " +
                        std::string(kFirst) + ", and the device plugin"));
  EXPECT_THAT(addresses(), IsEmpty());
  EXPECT_THAT(drivers(), ElementsAre("nvidia", "nvidia", "nvidia")) << "nothing is changed";

  want(kAllAway, 2);
  rounds();
  ASSERT_THAT(drivers(), ElementsAre("vfio-pci", "vfio-pci", "vfio-pci"));
  claimed_ = {address(kThird)};
  want("  - {devices: all, allocation: dra}\n  - {devices: [2], mode: host}\n", 3);
  rounds();
  round();
  EXPECT_FALSE(state().error) << "the GPU of a claim is not the plugin's, though it stays on vfio";
  EXPECT_THAT(addresses(), ElementsAre(kFirst, kSecond, kThird));
}

}  // namespace
}  // namespace ferry::host
