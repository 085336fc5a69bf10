// SPDX-License-Identifier: Apache-2.0
#include "kubevirt-plugin/allocation/allocation_core.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "tests/kubevirt-plugin/allocation_node.h"

namespace ferry::plugin {
namespace {

using namespace core_test;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class AllocationsTest : public testing::Test {
 protected:
  void SetUp() override {
    allocations.replace(std::vector{resource("CARD", {device("0000:01:00.0", 15)})}, {}, {}, {});
    allocations.take_stale();
  }
  Allocations::Grant reserve() {
    return allocations.reserve("nvidia.com/CARD", std::vector<Ids>{{"0000:01:00.0"}}).value();
  }
  void allocate() { allocations.commit(reserve()); }
  /// By a list that was asked for just now.
  void name(const std::string& pod) {
    const Holding held{.resource = "nvidia.com/CARD", .ids = {"0000:01:00.0"}, .pod = pod};
    allocations.reconcile(std::vector{held}, {}, {}, {.asked = allocations.ticket()});
  }
  bool list_is_stale() { return allocations.take_stale().front(); }
  std::string listed_pod() const {
    const auto next = next_lists(allocations, {true}, Snapshot());
    return next ? next->snapshot->resources.front()->devices.front().pod : "nothing is listed";
  }
  Allocations allocations;
};

TEST_F(AllocationsTest, KeepsItsListWhereTheLastPodIsNotNamed) {
  allocate();
  EXPECT_TRUE(list_is_stale());
  allocate();
  EXPECT_FALSE(list_is_stale()) << "it is somebody's, as before";
  name("default/vm");
  EXPECT_TRUE(list_is_stale());
  allocate();
  EXPECT_TRUE(list_is_stale()) << "it is that pod's no more";
  allocate();
  EXPECT_FALSE(list_is_stale());
}

TEST_F(AllocationsTest, NamesNobodyForARequestThatIsNotAnswered) {
  allocate();
  name("default/vm");
  ASSERT_EQ(listed_pod(), "default/vm");
  const auto refused = reserve();
  name("default/vm");
  EXPECT_EQ(listed_pod(), "");
  allocations.give_up(refused, {});
  EXPECT_EQ(listed_pod(), "default/vm") << "the last one has it again";
  const auto answered = reserve();
  name("default/vm");
  allocations.commit(answered);
  EXPECT_TRUE(list_is_stale());
  EXPECT_EQ(listed_pod(), "");
}

TEST_F(AllocationCoreTest, AnswersWithTheAskedAddressesInTheirOrder) {
  const auto answer = allocate("CARD", {"0000:02:00.0", "0000:01:00.0"});
  ASSERT_TRUE(answer) << answer.error().message;
  ASSERT_EQ(answer->size(), 1U);
  EXPECT_EQ(answer->front().env_name, "PCI_RESOURCE_NVIDIA_COM_CARD");
  EXPECT_EQ(answer->front().env_value, "0000:02:00.0,0000:01:00.0");
  EXPECT_THAT(answer->front().nodes,
              ElementsAre("/dev/vfio/vfio", "/dev/vfio/16", "/dev/vfio/15", "/dev/shared"));
}

TEST_F(AllocationCoreTest, AnswersAVgpuUnderTheOtherPrefix) {
  const auto answer = allocate("VGPU", {"uuid-1"});
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->front().env_name, "MDEV_PCI_RESOURCE_NVIDIA_COM_VGPU");
  EXPECT_THAT(answer->front().nodes, ElementsAre("/dev/vfio/vfio", "/dev/vfio/70"));
}

TEST_F(AllocationCoreTest, HoldsTheGroupsOtherDevicesBackWhateverTheirResource) {
  ASSERT_TRUE(allocate("CARD", {"0000:01:00.0"}));
  EXPECT_EQ(reason("0000:01:00.1"), "held back: 0000:01:00.0 of its IOMMU group 15 is allocated");
  EXPECT_EQ(reason("0000:02:00.1"), "");
  EXPECT_EQ(reason("0000:01:00.0"), "") << "an allocated device stays Healthy";
  EXPECT_TRUE(allocated("0000:01:00.0"));
  EXPECT_THAT(held_with_group(), ElementsAre("0000:01:00.1"));

  const auto second = allocate("AUDIO", {"0000:01:00.1"});
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Errc::refused);
  EXPECT_EQ(second.error().message,
            "allocate nvidia.com/AUDIO: 0000:01:00.1: its IOMMU group 15 is held: 0000:01:00.0 of "
            "nvidia.com/CARD is allocated");
}

TEST_F(AllocationCoreTest, GivesTwoMembersOfAGroupInOneRequest) {
  core.replace(std::vector<Resource>{resource("CARD", {device("a", 15), device("b", 15), device("c", 16)})});
  const auto answer = allocate("CARD", {"a", "b"});
  ASSERT_TRUE(answer);
  EXPECT_THAT(answer->front().nodes, ElementsAre("/dev/vfio/vfio", "/dev/vfio/15", "/dev/shared"));
}

TEST_F(AllocationCoreTest, RefusesARequestAsAWholeForOneOfItsDevices) {
  ASSERT_TRUE(allocate("AUDIO", {"0000:02:00.1"}));
  EXPECT_FALSE(allocate("CARD", {"0000:01:00.0", "0000:02:00.0"}));
  EXPECT_FALSE(allocated("0000:01:00.0"));
  EXPECT_EQ(reason("0000:01:00.1"), "");
}

TEST_F(AllocationCoreTest, NamesAnUnknownDevice) {
  const auto answer = allocate("CARD", {"0000:01:00.0", "0000:ff:00.0"});
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, Errc::not_found);
  EXPECT_EQ(answer.error().message, "allocate nvidia.com/CARD: 0000:ff:00.0: no such device is advertised");
  EXPECT_FALSE(allocated("0000:01:00.0"));
}

TEST_F(AllocationCoreTest, RefusesWhatIsNoRequest) {
  EXPECT_EQ(allocate_from(core, "nvidia.com/CARD", {}).error().code, Errc::usage);
  EXPECT_EQ(allocate("CARD", {}).error().code, Errc::usage);
  EXPECT_EQ(allocate("CARD", {"0000:01:00.0", "0000:01:00.0"}).error().code, Errc::usage);
  EXPECT_EQ(allocate("OTHER", {"0000:01:00.0"}).error().code, Errc::not_found);
}

TEST_F(AllocationCoreTest, GivesNothingThatTheHostNoLongerHas) {
  check.problems["0000:02:00.0"] = "its driver is nouveau now and was vfio-pci";
  const auto answer = allocate("CARD", {"0000:01:00.0", "0000:02:00.0"});
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, Errc::differs);
  EXPECT_EQ(answer.error().message,
            "allocate nvidia.com/CARD: 0000:02:00.0: its driver is nouveau now and was vfio-pci");
  EXPECT_FALSE(allocated("0000:01:00.0")) << "all or none";
  EXPECT_EQ(reason("0000:01:00.1"), "");
  EXPECT_EQ(reason("0000:02:00.0"), "its driver is nouveau now and was vfio-pci");
  EXPECT_EQ(doubts, 1);

  EXPECT_EQ(allocate("CARD", {"0000:02:00.0"}).error().code, Errc::refused);
  check.problems.clear();
  core.replace(machine());
  EXPECT_EQ(reason("0000:02:00.0"), "");
  EXPECT_TRUE(allocate("CARD", {"0000:02:00.0"}));
}

TEST_F(AllocationCoreTest, HoldsTheGroupWhileTheHostIsAsked) {
  std::error_code other;
  check.while_asked = [&](const std::string& id) {
    if (id == "0000:01:00.0") other = allocate("AUDIO", {"0000:01:00.1"}).error().code;
  };
  ASSERT_TRUE(allocate("CARD", {"0000:01:00.0"}));
  EXPECT_EQ(other, Errc::refused);
}

TEST_F(AllocationCoreTest, RefusesTheSameDeviceWhileTheHostIsAsked) {
  std::error_code other;
  check.while_asked = [&](const std::string& /*id*/) {
    check.while_asked = {};
    other = allocate("CARD", {"0000:01:00.0"}).error().code;
  };
  ASSERT_TRUE(allocate("CARD", {"0000:01:00.0"}));
  EXPECT_EQ(other, Errc::refused);
}

TEST_F(AllocationCoreTest, ListsADeviceWhoseNodeIsGoneAsUnhealthyUntilTheNextScan) {
  auto one = device("0000:01:00.0", 15);
  one.nodes = {"/dev/vfio/vfio", "/dev/vfio/15"};
  auto other = device("0000:02:00.0", 16);
  other.nodes = {"/dev/vfio/vfio", "/dev/vfio/16"};
  const std::vector<Resource> both{resource("CARD", {one, other})};
  core.replace(both);
  core.node_gone("/dev/vfio/1");
  EXPECT_EQ(reason("0000:01:00.0"), "") << "another one's node";
  core.node_gone("/dev/vfio/15");
  EXPECT_EQ(reason("0000:01:00.0"), "/dev/vfio/15 is gone");
  EXPECT_EQ(reason("0000:02:00.0"), "");
  EXPECT_EQ(allocate("CARD", {"0000:01:00.0"}).error().code, Errc::refused);
  core.replace(both);
  EXPECT_EQ(reason("0000:01:00.0"), "");
}

TEST_F(AllocationCoreTest, GivesNoUnhealthyDevice) {
  auto broken = device("0000:01:00.0", 15);
  broken.problem = "/dev/vfio/15 is not there";
  core.replace(std::vector<Resource>{resource("CARD", {broken})});
  EXPECT_EQ(reason("0000:01:00.0"), "/dev/vfio/15 is not there");
  EXPECT_THAT(allocate("CARD", {"0000:01:00.0"}).error().message, HasSubstr("Unhealthy: /dev/vfio/15"));
}

TEST_F(AllocationCoreTest, TakesTheKubeletsWordThatADeviceIsFreeAgain) {
  ASSERT_TRUE(allocate("CARD", {"0000:01:00.0", "0000:02:00.0"}));
  ASSERT_TRUE(allocate("CARD", {"0000:02:00.0"})) << "its container ended";
  EXPECT_FALSE(allocated("0000:01:00.0")) << "both were of one container";
  EXPECT_EQ(reason("0000:01:00.1"), "");
  EXPECT_NE(reason("0000:02:00.1"), "");
}

TEST_F(AllocationCoreTest, DoesNotTakeAnothersDeviceForFree) {
  core.replace(std::vector<Resource>{resource("CARD", {device("a", 15), device("b", 15)})});
  ASSERT_TRUE(allocate("CARD", {"a"}));
  EXPECT_EQ(allocate("CARD", {"b"}).error().code, Errc::refused);
  EXPECT_TRUE(allocate("CARD", {"a"}));
}

TEST_F(AllocationCoreTest, ReleasesWhatNobodyHoldsAnyMore) {
  ASSERT_TRUE(allocate("CARD", {"0000:01:00.0"}));
  reconcile({}, core.ticket());
  EXPECT_FALSE(allocated("0000:01:00.0"));
  EXPECT_TRUE(allocate("AUDIO", {"0000:01:00.1"}));
}

TEST_F(AllocationCoreTest, KeepsWhatIsHeldAndWhatIsTooNewToBeListed) {
  ASSERT_TRUE(allocate("CARD", {"0000:01:00.0"}));
  const auto settled = core.ticket();
  ASSERT_TRUE(allocate("CARD", {"0000:02:00.0"}));
  reconcile(std::vector<Holding>{{"nvidia.com/CARD", {"0000:01:00.0"}}}, settled);
  EXPECT_TRUE(allocated("0000:01:00.0"));
  EXPECT_TRUE(allocated("0000:02:00.0"));
}

// The kubelet forgets a pod that is removed by force while its VM is still ending.
TEST_F(AllocationCoreTest, ReleasesNothingThatIsStillOpen) {
  ASSERT_TRUE(allocate("CARD", {"0000:01:00.0", "0000:02:00.0"}));
  check.open = {16};
  reconcile({}, core.ticket());
  EXPECT_TRUE(allocated("0000:01:00.0")) << "what was given together is released together";
  EXPECT_TRUE(allocated("0000:02:00.0"));
  EXPECT_TRUE(core.snapshot()->awaits_release);
  EXPECT_FALSE(allocate("AUDIO", {"0000:01:00.1"}));

  check.open.clear();
  reconcile({}, core.ticket());
  EXPECT_FALSE(allocated("0000:01:00.0"));
  EXPECT_TRUE(allocate("AUDIO", {"0000:01:00.1"}));
}

TEST_F(AllocationCoreTest, GivesNothingOfAGroupThatIsStillOpenThoughTheKubeletDoes) {
  ASSERT_TRUE(allocate("CARD", {"0000:01:00.0"}));
  check.open = {15};
  const auto again = allocate("CARD", {"0000:01:00.0"});
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, Errc::refused);
  EXPECT_EQ(again.error().message,
            "allocate nvidia.com/CARD: 0000:01:00.0: /dev/vfio/15 is open: its previous user has not closed "
            "it yet");
  EXPECT_TRUE(allocated("0000:01:00.0")) << "it stays with whom it was given to";
  EXPECT_EQ(reason("0000:01:00.0"), "/dev/vfio/15 is open: its previous user has not closed it yet");
  EXPECT_EQ(doubts, 0) << "the scan was right";
  check.open.clear();
  EXPECT_TRUE(allocate("CARD", {"0000:01:00.0"}));
}

TEST_F(AllocationCoreTest, GivesNothingOfAGroupThatTheHostIsSilentAbout) {
  check.silent = {15};
  const auto refused = allocate("CARD", {"0000:01:00.0"});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::refused);
  EXPECT_THAT(refused.error().message, HasSubstr("0000:01:00.0: the host does not answer"));
  EXPECT_FALSE(allocated("0000:01:00.0"));
  EXPECT_THAT(reason("0000:01:00.0"), HasSubstr("the host does not answer")) << "nobody is known to have it";
  EXPECT_EQ(doubts, 0) << "a scan would hang as well";
  EXPECT_TRUE(allocate("CARD", {"0000:02:00.0"}));
  check.silent.clear();
  reconcile({{"nvidia.com/CARD", {"0000:02:00.0"}}}, core.ticket());
  EXPECT_EQ(reason("0000:01:00.0"), "") << "it answers again";
}

// Of mixed sizes a GPU carries several types, each a resource: here GPU b does, and GPU a has one of the
// smaller.
std::vector<Resource> vgpus_of_mixed_sizes() {
  const auto vgpu = [](const std::string& id, std::uint32_t group, const std::string& gpu) {
    auto made = device(id, group);
    made.gpu = gpu;
    return made;
  };
  return {resource("4Q", {vgpu("a4", 21, "0000:81:00.0"), vgpu("b4", 22, "0000:82:00.0")}),
          resource("8Q", {vgpu("b8", 23, "0000:82:00.0")})};
}

TEST_F(AllocationCoreTest, PacksVgpusOnTheGpuThatHasMostOfAnyType) {
  core.replace(vgpus_of_mixed_sizes());
  const Ids free = {"a4", "b4"};
  EXPECT_THAT(*core.prefer("nvidia.com/4Q", free, {}, 1), ElementsAre("a4"));
  ASSERT_TRUE(allocate("8Q", {"b8"}));
  EXPECT_THAT(*core.prefer("nvidia.com/4Q", free, {}, 1), ElementsAre("b4"));
}

// Nobody tells of a release unless he is asked, and where the next vGPU goes hangs on it.
TEST_F(AllocationCoreTest, AwaitsTheReleaseOfAVgpuBesideAnotherType) {
  core.replace(vgpus_of_mixed_sizes());
  EXPECT_FALSE(core.snapshot()->awaits_release);
  ASSERT_TRUE(allocate("4Q", {"a4"}));
  EXPECT_FALSE(core.snapshot()->awaits_release) << "one type alone is on its GPU";
  ASSERT_TRUE(allocate("8Q", {"b8"}));
  EXPECT_TRUE(core.snapshot()->awaits_release);
  reconcile({{"nvidia.com/4Q", {"a4"}}}, core.ticket());
  EXPECT_FALSE(allocated("b8"));
  EXPECT_FALSE(core.snapshot()->awaits_release);
  EXPECT_THAT(*core.prefer("nvidia.com/4Q", Ids{"b4"}, {}, 1), ElementsAre("b4"));
}

// It would give it to a pod that cannot have it.
TEST_F(AllocationCoreTest, ListsUnhealthyWhatTheKubeletHasForgottenAndAVmHasNot) {
  ASSERT_TRUE(allocate("CARD", {"0000:01:00.0"}));
  check.open = {15};
  reconcile({}, core.ticket());
  EXPECT_EQ(reason("0000:01:00.0"), "/dev/vfio/15 is open: its previous user has not closed it yet");
  EXPECT_EQ(reason("0000:01:00.1"), "held back: 0000:01:00.0 of its IOMMU group 15 is allocated");
  core.replace(machine());
  EXPECT_NE(reason("0000:01:00.0"), "") << "a scan knows nothing of it";
  reconcile({{"nvidia.com/CARD", {"0000:01:00.0"}}}, core.ticket());
  EXPECT_EQ(reason("0000:01:00.0"), "") << "its pod is listed again";

  reconcile({}, core.ticket());
  EXPECT_NE(reason("0000:01:00.0"), "");
  check.open.clear();
  reconcile({}, core.ticket());
  EXPECT_EQ(reason("0000:01:00.0"), "");
  EXPECT_FALSE(allocated("0000:01:00.0"));
}

// A VM from before this process, whose pod the kubelet has forgotten as well.
TEST_F(AllocationCoreTest, ListsUnhealthyWhatARequestHasFoundOpenUntilItIsClosed) {
  check.open = {15};
  EXPECT_EQ(allocate("CARD", {"0000:01:00.0"}).error().code, Errc::refused);
  for (const char* const id : {"0000:01:00.0", "0000:01:00.1"}) {
    EXPECT_EQ(reason(id), "/dev/vfio/15 is open: its previous user has not closed it yet");
    EXPECT_FALSE(allocated(id));
  }
  EXPECT_TRUE(core.snapshot()->awaits_release) << "so that somebody looks again";
  reconcile({}, 0);
  EXPECT_NE(reason("0000:01:00.0"), "");
  check.open.clear();
  EXPECT_TRUE(allocate("AUDIO", {"0000:01:00.1"})) << "each request asks anew";
  EXPECT_EQ(reason("0000:01:00.0"), "held back: 0000:01:00.1 of its IOMMU group 15 is allocated");

  check.open = {16};
  EXPECT_FALSE(allocate("CARD", {"0000:02:00.0"}));
  check.open.clear();
  reconcile({}, 0);
  EXPECT_EQ(reason("0000:02:00.0"), "");
}

TEST_F(AllocationCoreTest, LeavesWhatARequestWouldHaveTakenWhenItFails) {
  ASSERT_TRUE(allocate("CARD", {"0000:01:00.0", "0000:02:00.0"}));
  check.problems["0000:01:00.0"] = "its driver is nouveau now and was vfio-pci";
  check.while_asked = [&](const std::string& /*id*/) {
    EXPECT_TRUE(allocated("0000:02:00.0")) << "nothing is taken before it is certain";
    reconcile({}, core.ticket());
  };
  EXPECT_FALSE(allocate("CARD", {"0000:01:00.0"}));
  EXPECT_TRUE(allocated("0000:01:00.0"));
  EXPECT_TRUE(allocated("0000:02:00.0")) << "nor released meanwhile";
}

TEST_F(AllocationCoreTest, ReleasesNothingForAnotherPodWhileAPartOfItIsOpen) {
  ASSERT_TRUE(allocate("CARD", {"0000:01:00.0", "0000:02:00.0"}));
  check.open = {16};
  const auto other = allocate("CARD", {"0000:01:00.0"});
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code, Errc::refused);
  EXPECT_THAT(other.error().message, HasSubstr("0000:02:00.0: /dev/vfio/16 is open"));
  EXPECT_TRUE(allocated("0000:02:00.0"));
  EXPECT_NE(reason("0000:02:00.1"), "");
  check.open.clear();
  EXPECT_TRUE(allocate("CARD", {"0000:01:00.0"}));
  EXPECT_FALSE(allocated("0000:02:00.0"));
}

TEST_F(AllocationCoreTest, OpensNothingForARequestThatIsRefusedAnyway) {
  ASSERT_TRUE(allocate("CARD", {"0000:01:00.0"}));
  check.asked.clear();
  EXPECT_FALSE(allocate("AUDIO", {"0000:01:00.1"}));
  EXPECT_THAT(check.asked, IsEmpty());
}

// To ask is to open it, and a VM that opens it at that moment does not start.
TEST_F(AllocationCoreTest, AsksNotWhetherWhatAVmIsAboutToOpenIsOpen) {
  ASSERT_TRUE(allocate("CARD", {"0000:01:00.0"}));
  const auto settled = core.ticket();
  ASSERT_TRUE(allocate("CARD", {"0000:02:00.0"}));
  check.asked.clear();
  reconcile(std::vector<Holding>{{"nvidia.com/CARD", {"0000:01:00.0"}}}, settled);
  EXPECT_THAT(check.asked, IsEmpty()) << "one is listed, the other too young";
  reconcile({}, settled);
  EXPECT_THAT(check.asked, ElementsAre(15));
}

TEST_F(AllocationCoreTest, KeepsTheGroupOfAnUnadvertisedDeviceForAsLongAsItIsOpen) {
  check.groups = {{"0000:01:00.0", 15}};
  reconcile(std::vector<Holding>{{"nvidia.com/FORMER", {"0000:01:00.0"}}}, 0);
  check.open = {15};
  reconcile({}, core.ticket());
  EXPECT_NE(reason("0000:01:00.1"), "");
  check.open.clear();
  reconcile({}, core.ticket());
  EXPECT_EQ(reason("0000:01:00.1"), "");
}

TEST_F(AllocationCoreTest, ReleasesNothingWhileTheHostIsAsked) {
  check.while_asked = [&](const std::string& /*id*/) { reconcile({}, core.ticket()); };
  ASSERT_TRUE(allocate("CARD", {"0000:01:00.0"}));
  EXPECT_TRUE(allocated("0000:01:00.0"));
}

TEST_F(AllocationCoreTest, ReleasesNothingForAListOfBeforeTheAnswer) {
  AllocationCore::Ticket asked = 0;
  check.while_asked = [&](const std::string& /*id*/) { asked = core.ticket(); };
  ASSERT_TRUE(allocate("CARD", {"0000:01:00.0"}));
  reconcile({}, asked);
  EXPECT_TRUE(allocated("0000:01:00.0"));
  reconcile({}, core.ticket());
  EXPECT_FALSE(allocated("0000:01:00.0"));
}

}  // namespace
}  // namespace ferry::plugin
