// SPDX-License-Identifier: Apache-2.0
// The rounds of hostd: devices that pods, VMs and processes use.
#include <string>

#include <gmock/gmock.h>

#include "api/host_status.h"
#include "tests/host/keeper_node.h"
#include "tests/support/must.h"

namespace ferry::host {
namespace {

using namespace std::chrono_literals;
using test::must;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

// -- what pods have --

TEST_F(NodeKeeperTest, LeavesWhatAPodHasAndTakesItWhenThePodEnds) {
  start_plugin_with_all();
  allocated_ = {kFirst};
  plugin_follows();
  want(kAllBack);
  const auto refused = rounds();
  EXPECT_EQ(refused.phase, api::NodePhase::blocked);
  EXPECT_THAT(drivers(), ElementsAre("vfio-pci", "nvidia", "nvidia")) << "the others do not wait";
  EXPECT_EQ(gpu(kFirst).state, api::GpuState::blocked);
  EXPECT_THAT(gpu(kFirst).reason, HasSubstr("pod (by the kubelet) holds nvidia.com/T4"));
  ASSERT_THAT(gpu(kFirst).users, SizeIs(1));
  EXPECT_EQ(gpu(kFirst).users.at(0).kind, "pod");
  EXPECT_TRUE(gpu(kFirst).users.at(0).by_the_plugin);
  EXPECT_TRUE(gpu(kFirst).only_in_use);
  EXPECT_THAT(unavailable(), ElementsAre(kFirst)) << "no other pod shall get it when this one ends";

  kernel_.forget_changes();
  EXPECT_EQ(rounds().phase, api::NodePhase::blocked);
  EXPECT_THAT(kernel_.changes(), IsEmpty()) << "and nothing is said twice";

  allocated_.clear();
  EXPECT_EQ(rounds().phase, api::NodePhase::ready);
  EXPECT_THAT(drivers(), ElementsAre("nvidia", "nvidia", "nvidia"));
  EXPECT_THAT(unavailable(), IsEmpty());
}

TEST_F(NodeKeeperTest, WithdrawsWhatAPodsVmUses) {
  start_plugin_with_all();
  allocated_ = {kFirst};
  users_.held = {{kFirst, vm(412)}};
  plugin_follows();
  want(kFirstBack);
  const auto refused = rounds();
  EXPECT_EQ(refused.phase, api::NodePhase::blocked);
  EXPECT_THAT(refused.processes, ElementsAre(412));
  EXPECT_THAT(gpu(kFirst).reason, HasSubstr("VM tenant (pid 412)"));
  EXPECT_THAT(unavailable(), ElementsAre(kFirst));
  EXPECT_EQ(refused.again, now_ + 300s) << "the plugin tells, if it lives";
  users_.held.clear();
  allocated_.clear();
  EXPECT_EQ(rounds().phase, api::NodePhase::ready);
  EXPECT_EQ(kernel_.driver_of(kFirst), "nvidia");
}

// A tenant may have any number of processes, and readers of status.json refuse a large file.
TEST_F(NodeKeeperTest, ReportsAtMost64UsersAnd8KiBOfReasons) {
  want(kAllAway);
  rounds();
  for (int i = 0; i < 65; ++i) {
    vfio::DeviceUser user = vm(1000 + i);
    user.name = std::string(253, 'n');
    users_.held.emplace(kFirst, user);
  }
  want(kAllBack);
  EXPECT_EQ(rounds().phase, api::NodePhase::blocked);
  EXPECT_THAT(gpu(kFirst).users, SizeIs(64));
  EXPECT_THAT(gpu(kFirst).reason, SizeIs(testing::AllOf(testing::Gt(8000U), testing::Le(8192U))));
  EXPECT_TRUE(gpu(kFirst).only_in_use);
  users_.held.clear();
  EXPECT_EQ(rounds().phase, api::NodePhase::ready);
}

TEST_F(NodeKeeperTest, NamesOnlyThoseWhoHaveWhatShallGo) {
  want("  - {devices: [1], mode: vgpu, vgpu-devices: {T4-4Q: 2}}\n");
  rounds();
  ASSERT_THAT(gpu(kSecond).vgpus, SizeIs(2));
  const std::string stays = gpu(kSecond).vgpus.at(0).id;
  const std::string goes = gpu(kSecond).vgpus.at(1).id;
  users_.held = {{stays, vm(412)}, {goes, vm(413)}};
  want("  - {devices: [1], mode: vgpu, vgpu-devices: {T4-4Q: 1}}\n");
  EXPECT_EQ(rounds().phase, api::NodePhase::blocked);
  EXPECT_TRUE(gpu(kSecond).only_in_use) << gpu(kSecond).reason;
  ASSERT_THAT(gpu(kSecond).users, SizeIs(1)) << gpu(kSecond).reason;
  EXPECT_THAT(gpu(kSecond).reason, HasSubstr("pid " + std::to_string(*gpu(kSecond).users.at(0).pid)));
}

// Neither the kubelet nor the plugin knows VMs of libvirt, or of a QEMU that a person started.
TEST_F(NodeKeeperTest, TellsWhoHasAVgpuWithoutTheKubelet) {
  want(kDivided);
  rounds();
  ASSERT_THAT(gpu(kSecond).vgpus, SizeIs(2));
  const std::string id = gpu(kSecond).vgpus.at(0).id;
  EXPECT_FALSE(gpu(kSecond).vgpus.at(0).users) << "nobody has looked";
  users_.held = {{id, vm(412)}};
  must(keeper_.look_at_use());
  ASSERT_TRUE(gpu(kSecond).vgpus.at(0).users);
  EXPECT_THAT(*gpu(kSecond).vgpus.at(0).users,
              ElementsAre(api::ReportedUser{"virtual_machine", "tenant", 412, "uid-7"}));
  ASSERT_TRUE(gpu(kSecond).vgpus.at(1).users);
  EXPECT_THAT(*gpu(kSecond).vgpus.at(1).users, IsEmpty()) << "free, by all that could be asked";
  const auto generation = state().generation;
  must(keeper_.look_at_use());
  round();
  EXPECT_EQ(state().generation, generation) << "nothing has changed";
  users_.held.clear();
  must(keeper_.look_at_use());
  EXPECT_THAT(*gpu(kSecond).vgpus.at(0).users, IsEmpty());
}

TEST_F(NodeKeeperTest, CallsNoVgpuFreeWhoseUserMayHaveGoneUnseen) {
  want(kDivided);
  rounds();
  const std::string id = gpu(kSecond).vgpus.at(0).id;
  users_.held = {{id, vm(412)}};
  open_users_.blind = "a process keeps us waiting";
  must(keeper_.look_at_use());
  EXPECT_TRUE(gpu(kSecond).vgpus.at(0).users) << "who is seen is seen";
  EXPECT_FALSE(gpu(kSecond).vgpus.at(1).users);
  open_users_.blind.clear();
  open_users_.unknown = {"process 7: permission denied"};
  must(keeper_.look_at_use());
  EXPECT_FALSE(gpu(kSecond).vgpus.at(1).users) << "it may be the one";
}

TEST_F(NodeKeeperTest, SaysOfNoVgpuWhoHasItOnceNobodyCanSee) {
  want(kDivided);
  rounds();
  const std::string id = gpu(kSecond).vgpus.at(0).id;
  users_.held = {{id, vm(412)}};
  must(keeper_.look_at_use());
  ASSERT_TRUE(gpu(kSecond).vgpus.at(0).users);
  open_users_.error = Error{.code = make_error_code(Errc::malformed_host), .message = "no /proc", .hint = {}};
  EXPECT_FALSE(keeper_.look_at_use());
  EXPECT_FALSE(gpu(kSecond).vgpus.at(0).users);
}

TEST_F(NodeKeeperTest, AsksNobodyWhoHasVgpusWhereThereAreNone) {
  want(kAllAway);
  rounds();
  users_.before_scan = [] { FAIL() << "somebody is asked"; };
  must(keeper_.look_at_use());
}

TEST_F(NodeKeeperTest, WithdrawsTheVgpuThatAPodsVmUses) {
  want(kDivided);
  start_plugin();
  rounds();
  const std::string id = gpu(kSecond).vgpus.at(0).id;
  allocated_ = {id};
  users_.held = {{id, vm(412)}};
  plugin_follows();
  want("  - {devices: [1], mode: passthrough}\n");
  const auto refused = rounds();
  EXPECT_EQ(refused.phase, api::NodePhase::blocked);
  EXPECT_THAT(unavailable(), ElementsAre(id));
  users_.held.clear();
  allocated_.clear();
  EXPECT_EQ(rounds().phase, api::NodePhase::ready);
  EXPECT_EQ(kernel_.driver_of(kSecond), "vfio-pci");
}

// A file that cannot be read says nothing about the GPU that a pod has, and the next pod shall not be given.
TEST_F(NodeKeeperTest, AwaitsThePodThoughItCannotReadWhatIsDesired) {
  start_plugin_with_all();
  allocated_ = {kFirst};
  plugin_follows();
  want(kFirstBack);
  rounds();
  ASSERT_THAT(unavailable(), ElementsAre(kFirst));
  kernel_.file(kDesired, "{");
  EXPECT_EQ(round().phase, api::NodePhase::failed);
  EXPECT_THAT(unavailable(), ElementsAre(kFirst));
  NodeKeeper next = make_keeper();
  next.round();
  EXPECT_THAT(unavailable(), ElementsAre(kFirst)) << "after a restart too";
  kernel_.remove(kDesired);
  EXPECT_EQ(next.round().phase, api::NodePhase::idle);
  EXPECT_THAT(unavailable(), IsEmpty());
}

// -- other users --

TEST_F(NodeKeeperTest, SaysOfAVmsGpuOnlyThatTheVmHasIt) {
  start_plugin_with_all();
  users_.held = {{kSecond, vm(412)}};
  want(kAllBack);
  const auto refused = rounds();
  EXPECT_EQ(refused.phase, api::NodePhase::blocked);
  EXPECT_THAT(drivers(), ElementsAre("nvidia", "vfio-pci", "nvidia"));
  EXPECT_EQ(gpu(kSecond).reason, "0000:06:00.0 is in use: VM tenant (pid 412) in pod uid-7 holds its group");
  EXPECT_THAT(gpu(kSecond).users, SizeIs(1));
  EXPECT_EQ(refused.again, now_ + 300s);
  EXPECT_THAT(unavailable(), IsEmpty()) << "it is advertised as before";
}

// The device came free after the plugin was asked, so the kubelet may still allocate it.
TEST_F(NodeKeeperTest, DoesNotTakeUnaskedWhatHasJustComeFree) {
  start_plugin_with_all();
  users_.held = {{kSecond, vm(412)}};
  want(kAllBack);
  round();
  plugin_follows();
  unsigned looks = 0;  // the first is the plan's, and decides what the plugin is asked
  users_.before_scan = [&] {
    if (++looks > 1) users_.held.clear();
  };
  EXPECT_EQ(round().phase, api::NodePhase::blocked);
  EXPECT_EQ(kernel_.driver_of(kSecond), "vfio-pci");
}

TEST_F(NodeKeeperTest, RefusesWhatAVmHasAndDoesItWhenTheVmEnds) {
  want(kAllAway);
  round();
  users_.held = {{kSecond, vm(412)}};
  want(kAllBack);
  const auto refused = round();
  EXPECT_EQ(refused.phase, api::NodePhase::blocked);
  EXPECT_EQ(refused.status, ExitStatus::refused);
  EXPECT_THAT(drivers(), ElementsAre("nvidia", "vfio-pci", "nvidia"));
  EXPECT_THAT(refused.processes, ElementsAre(412));
  EXPECT_EQ(refused.again, now_ + 300s) << "the kernel tells of its end, and not that it lets go";
  ASSERT_THAT(gpu(kSecond).users, SizeIs(1));
  EXPECT_EQ(gpu(kSecond).users.at(0), (api::ReportedUser{"virtual_machine", "tenant", 412, "uid-7"}));
  EXPECT_TRUE(gpu(kSecond).only_in_use);
  EXPECT_THAT(gpu(kSecond).hint, HasSubstr("stop the VM"));
  EXPECT_THAT(unavailable(), IsEmpty());
  users_.held.clear();
  EXPECT_EQ(round(News::process_ended).phase, api::NodePhase::ready);
  EXPECT_THAT(drivers(), ElementsAre("nvidia", "nvidia", "nvidia"));
}

TEST_F(NodeKeeperTest, SaysWhereMoreThanAUserStandsInTheWay) {
  kernel_.add_driver({.name = "e1000e", .ids = {"class:0200"}});
  kernel_.add_function({"8086:10d3", 0x020000}, "0000:09:00.0", 6, "e1000e");
  users_.held = {{kFirst, vm(412)}, {kSecond, vm(413)}};
  want(kAllAway);
  EXPECT_EQ(round().phase, api::NodePhase::blocked);
  EXPECT_TRUE(gpu(kFirst).only_in_use);
  EXPECT_EQ(gpu(kSecond).state, api::GpuState::blocked);
  EXPECT_FALSE(gpu(kSecond).only_in_use) << gpu(kSecond).reason;
}

TEST_F(NodeKeeperTest, WritesNothingForWhatIsStillRefused) {
  want(kAllAway);
  round();
  users_.held = {{kSecond, vm(412)}};
  want(kAllBack);
  round();
  kernel_.forget_changes();
  EXPECT_EQ(round().phase, api::NodePhase::blocked);
  EXPECT_THAT(kernel_.changes(), IsEmpty());
}

TEST_F(NodeKeeperTest, ComesBackToUsersWhoseEndIsNotReported) {
  want(kAllAway);
  round();
  vfio::DeviceUser configured = vm(0);
  configured.pid.reset();
  users_.held = {{kSecond, configured}};
  want(kAllBack);
  const auto refused = round();
  ASSERT_TRUE(refused.again);
  EXPECT_EQ(*refused.again, now_ + 10s);
  const auto again = round();
  ASSERT_TRUE(again.again);
  EXPECT_EQ(*again.again, now_ + 20s);
}

TEST_F(NodeKeeperTest, ComesBackToUsersWhoseEndsAreNotAllReported) {
  want(kAllAway);
  round();
  users_.held = {{kFirst, vm(41)}, {kSecond, vm(42)}, {kThird, vm(43)}};
  want(kAllBack);
  const auto unreported = round();
  EXPECT_EQ(unreported.phase, api::NodePhase::blocked);
  EXPECT_EQ(unreported.again, now_ + 10s);
  users_.held.erase(kThird);
  const auto reported = round();
  EXPECT_EQ(reported.phase, api::NodePhase::blocked);
  EXPECT_EQ(reported.again, now_ + 300s);
}

}  // namespace
}  // namespace ferry::host
