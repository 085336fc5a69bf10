// SPDX-License-Identifier: Apache-2.0
#include "kubevirt-plugin/allocation/allocation_core.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "tests/kubevirt-plugin/core_fixture.h"

namespace ferry::plugin {
namespace {

using namespace core_test;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
// Two cards, each with its audio in its group; a vGPU.
class AllocationCoreTest : public testing::Test {
 protected:
  static std::vector<Resource> machine() {
    return {resource("CARD", {device("0000:01:00.0", 15), device("0000:02:00.0", 16)}),
            resource("AUDIO", {device("0000:01:00.1", 15), device("0000:02:00.1", 16)}),
            resource("VGPU", {device("uuid-1", 70)}, EnvPrefix::mdev_pci_resource)};
  }
  void SetUp() override { core.replace(machine()); }

  Result<std::vector<Allocation>> allocate(const std::string& part, const Ids& ids) {
    return allocate_from(core, "nvidia.com/" + part, std::vector<Ids>{ids});
  }
  /// By a list that was asked for just now.
  void reconcile(std::vector<Holding> held, AllocationCore::Ticket settled) {
    core.reconcile(held, {.asked = core.ticket(), .settled = settled});
  }
  std::string reason(const std::string& id) const {
    for (const auto& resource : core.snapshot()->resources)
      for (const auto& device : resource->devices)
        if (device.id == id) return device.reason;
    return "not listed";
  }
  std::vector<std::string> held_with_group() const {
    std::vector<std::string> ids;
    for (const auto& resource : core.snapshot()->resources)
      for (const auto& device : resource->devices)
        if (device.held_with_group) ids.push_back(device.id);
    return ids;
  }
  bool allocated(const std::string& id) const {
    for (const auto& resource : core.snapshot()->resources)
      for (const auto& device : resource->devices)
        if (device.id == id) return device.allocated;
    return false;
  }

  TestCheck check;
  int doubts = 0;
  AllocationCore core{check, {.changed = {}, .doubted = [this] { ++doubts; }}};
};

class AllocationBookTest : public testing::Test {
 protected:
  void SetUp() override {
    book.replace(std::vector{resource("CARD", {device("0000:01:00.0", 15)})}, {}, {}, {});
    book.take_stale();
  }
  Allocations::Grant reserve() {
    return book.reserve("nvidia.com/CARD", std::vector<Ids>{{"0000:01:00.0"}}).value();
  }
  void allocate() { book.commit(reserve()); }
  /// By a list that was asked for just now.
  void name(const std::string& pod) {
    const Holding held{.resource = "nvidia.com/CARD", .ids = {"0000:01:00.0"}, .pod = pod};
    book.reconcile(std::vector{held}, {}, {}, {.asked = book.ticket()});
  }
  bool list_is_stale() { return book.take_stale().front(); }
  std::string listed_pod() const {
    const auto next = next_lists(book, {true}, Snapshot());
    return next ? next->snapshot->resources.front()->devices.front().pod : "nothing is listed";
  }
  Allocations book;
};

TEST_F(AllocationBookTest, KeepsItsListWhereTheLastPodIsNotNamed) {
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

TEST_F(AllocationBookTest, NamesNobodyForARequestThatIsNotAnswered) {
  allocate();
  name("default/vm");
  ASSERT_EQ(listed_pod(), "default/vm");
  const auto refused = reserve();
  name("default/vm");
  EXPECT_EQ(listed_pod(), "");
  book.give_up(refused, {});
  EXPECT_EQ(listed_pod(), "default/vm") << "the last one has it again";
  const auto answered = reserve();
  name("default/vm");
  book.commit(answered);
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

TEST_F(AllocationCoreTest, NamesThePodOfTheLastListThatKnowsTheAllocation) {
  const auto pod = [&] {
    for (const auto& resource : core.snapshot()->resources)
      for (const auto& device : resource->devices)
        if (device.id == "0000:01:00.0") return device.pod;
    return std::string("not listed");
  };
  const std::vector<Holding> first = {{"nvidia.com/CARD", {"0000:01:00.0"}, "a/first"}};
  EXPECT_FALSE(core.snapshot()->awaits_name);
  ASSERT_TRUE(allocate("CARD", {"0000:01:00.0"}));
  EXPECT_TRUE(core.snapshot()->awaits_name);
  EXPECT_EQ(pod(), "");
  reconcile(first, 0);
  EXPECT_EQ(pod(), "a/first");
  EXPECT_FALSE(core.snapshot()->awaits_name);
  core.replace(machine());
  EXPECT_EQ(pod(), "a/first") << "another scan changes nothing of it";
  // The kubelet gives it out again; a list that was asked for before says who had it.
  const auto asked = core.ticket();
  ASSERT_TRUE(allocate("CARD", {"0000:01:00.0"}));
  EXPECT_EQ(pod(), "");
  core.reconcile(first, {.asked = asked, .settled = 0});
  EXPECT_EQ(pod(), "");
  EXPECT_TRUE(core.snapshot()->awaits_name);
  reconcile(std::vector<Holding>{{"nvidia.com/CARD", {"0000:01:00.0"}, "a/second"}}, 0);
  EXPECT_EQ(pod(), "a/second");
  reconcile({}, core.ticket());
  EXPECT_FALSE(allocated("0000:01:00.0"));
  EXPECT_EQ(pod(), "");
  EXPECT_FALSE(core.snapshot()->awaits_name);
}

TEST_F(AllocationCoreTest, AdoptsWhatWasHeldBeforeItsTime) {
  reconcile(std::vector<Holding>{{"nvidia.com/CARD", {"0000:01:00.0", "gone"}}, {"nvidia.com/OTHER", {"x"}}},
            0);
  EXPECT_TRUE(allocated("0000:01:00.0"));
  EXPECT_EQ(allocate("AUDIO", {"0000:01:00.1"}).error().code, Errc::refused);
}

// While the list is on its way, the container ends and one of its devices goes to another.
TEST_F(AllocationCoreTest, AdoptsNothingFromAListThatIsOlderThanAnAllocation) {
  ASSERT_TRUE(allocate("CARD", {"0000:01:00.0", "0000:02:00.0"}));
  const std::vector<Holding> old = {{"nvidia.com/CARD", {"0000:01:00.0", "0000:02:00.0"}},
                                    {"nvidia.com/CARD", {"0000:01:00.0"}}};
  const auto asked = core.ticket();
  ASSERT_TRUE(allocate("CARD", {"0000:02:00.0"}));
  core.reconcile(old, {.asked = asked, .settled = 0});
  EXPECT_FALSE(allocated("0000:01:00.0"));
  EXPECT_TRUE(allocate("AUDIO", {"0000:01:00.1"})) << "nobody has its card";
  ASSERT_TRUE(allocate("AUDIO", {"0000:01:00.1"}));

  reconcile({{"nvidia.com/VGPU", {"uuid-1"}}}, 0);
  EXPECT_TRUE(allocated("uuid-1")) << "what is newer is believed";
}

// The kubelet gives a device out again: what else the same container had is free by that.
TEST_F(AllocationCoreTest, TakesWhatOneContainerHasForOne) {
  core.replace(std::vector<Resource>{resource("CARD", {device("a", 15), device("b", 15)})});
  check.groups = {{"c", 15}};
  const Holding whole = {"nvidia.com/CARD", {"a", "b", "c"}};
  reconcile({{"nvidia.com/CARD", {"a"}}, {"nvidia.com/CARD", {"b"}}, {"nvidia.com/CARD", {"c"}}}, 0);
  EXPECT_EQ(allocate("CARD", {"a"}).error().code, Errc::refused) << "each may be another pod's";
  reconcile({whole}, 0);
  ASSERT_TRUE(allocate("CARD", {"a"}));
  EXPECT_EQ(reason("b"), "held back: a of its IOMMU group 15 is allocated");
  EXPECT_FALSE(allocated("b"));
}

// A predecessor that did not mind groups: of the one that the kubelet has free again it tells by giving it
// out, of the other nobody does.
TEST_F(AllocationCoreTest, AwaitsTheReleaseOfAGroupOfTwoPods) {
  core.replace(std::vector<Resource>{resource("CARD", {device("a", 15), device("b", 16)})});
  check.groups = {{"audio", 15}};
  const Holding card = {"nvidia.com/CARD", {"a"}};
  reconcile({card}, 0);
  EXPECT_FALSE(core.snapshot()->awaits_release);
  reconcile({card, {"nvidia.com/SOUND", {"audio"}}}, 0);
  EXPECT_TRUE(core.snapshot()->awaits_release);
  EXPECT_FALSE(allocate("CARD", {"a"}));
  reconcile({}, core.ticket());
  EXPECT_FALSE(core.snapshot()->awaits_release);
  EXPECT_TRUE(allocate("CARD", {"a"}));
}

TEST_F(AllocationCoreTest, AwaitsNoReleaseOfGroupsThatAreNotOurs) {
  check.groups = {{"nic-1", 90}, {"nic-2", 90}};
  reconcile({{"example.com/nic", {"nic-1"}}, {"example.com/nic", {"nic-2"}}}, 0);
  core.replace(machine());
  EXPECT_FALSE(core.snapshot()->awaits_release);
}

// KubeVirt's own plugins call a device by its group; who comes after them may have its resource's name.
TEST_F(AllocationCoreTest, TakesANumberForAGroupWhereOursAreNone) {
  check.numbers = {{"15", 15}, {"16", 16}};
  check.groups = {{"15", 16}};  // as a number of ours, vfio15's group
  reconcile({{"nvidia.com/CARD", {"15"}}, {"nvidia.com/LATER", {"16"}}}, 0);
  EXPECT_EQ(reason("0000:01:00.0"), "held back: 15 of its IOMMU group 15 is allocated as nvidia.com/CARD");
  EXPECT_EQ(reason("0000:02:00.0"), "") << "others may count otherwise";
  EXPECT_FALSE(allocate("CARD", {"0000:01:00.0"}));

  auto resources = machine();
  resources.push_back(resource("LATER", {}));
  core.replace(resources);
  EXPECT_EQ(reason("0000:02:00.0"), "held back: 16 of its IOMMU group 16 is allocated as nvidia.com/LATER");
}

// A predecessor gave it out under another name, which this process knows nothing of.
TEST_F(AllocationCoreTest, KeepsTheGroupOfADeviceInUseUnderANameThatIsNotAdvertised) {
  check.groups = {{"0000:01:00.0", 15}};
  const std::vector<Holding> held = {{"nvidia.com/FORMER", {"0000:01:00.0"}}};
  reconcile(held, 0);
  for (const char* const id : {"0000:01:00.0", "0000:01:00.1"}) {
    EXPECT_EQ(reason(id), "held back: 0000:01:00.0 of its IOMMU group 15 is allocated as nvidia.com/FORMER");
    EXPECT_FALSE(allocated(id));
  }
  EXPECT_EQ(allocate("CARD", {"0000:01:00.0"}).error().message,
            "allocate nvidia.com/CARD: 0000:01:00.0: its IOMMU group 15 is held: 0000:01:00.0 of "
            "nvidia.com/FORMER is allocated");
  EXPECT_TRUE(core.snapshot()->awaits_release);
  core.replace(machine());
  EXPECT_NE(reason("0000:01:00.0"), "") << "a scan changes nothing of it";

  const auto settled = core.ticket();
  reconcile(held, settled);
  EXPECT_NE(reason("0000:01:00.0"), "");
  reconcile({}, 0);
  EXPECT_NE(reason("0000:01:00.0"), "") << "nothing counts as released yet";
  reconcile({}, settled);
  EXPECT_EQ(reason("0000:01:00.0"), "");
  EXPECT_TRUE(allocate("CARD", {"0000:01:00.0"}));
}

TEST_F(AllocationCoreTest, KeepsAnUnfitDeviceWhosePodWasNamed) {
  check.groups = {{"0000:01:00.0", 15}};
  AllocationCore late(check);
  late.reconcile(std::vector<Holding>{{"nvidia.com/CARD", {"0000:01:00.0"}}}, {});
  EXPECT_THAT(late.snapshot()->resources, IsEmpty());
  late.replace(machine());
  EXPECT_TRUE(late.snapshot()->resources.at(0)->devices.at(0).allocated);
  EXPECT_FALSE(late.snapshot()->resources.at(1)->devices.at(0).healthy()) << "its group's audio";
  late.reconcile({}, {.asked = late.ticket(), .settled = late.ticket()});
  EXPECT_FALSE(late.snapshot()->resources.at(0)->devices.at(0).allocated);
}

TEST_F(AllocationCoreTest, NamesWhatAPodHasOfAResourceThatDoesNotListIt) {
  check.groups = {{"0000:03:00.0", 17}, {"0000:04:00.0", 18}};
  const std::vector<Holding> held = {{"nvidia.com/CARD", {"0000:03:00.0"}},
                                     {"nvidia.com/CARD", {"on another host"}},
                                     {"example.com/nic", {"0000:04:00.0"}}};
  reconcile(held, 0);
  EXPECT_THAT(core.snapshot()->unlisted, ElementsAre(UnlistedDevice{"nvidia.com/CARD", "0000:03:00.0", 17}));
  EXPECT_TRUE(core.snapshot()->awaits_release);
  reconcile({}, core.ticket());
  EXPECT_THAT(core.snapshot()->unlisted, IsEmpty());
  EXPECT_FALSE(core.snapshot()->awaits_release);
}

// What a bare number means depends on who gave it out: NVIDIA's plugin for containers numbers GPUs too.
TEST_F(AllocationCoreTest, TakesANumberForOursUnderAResourceThatIsOrWasOursOnly) {
  check.groups = {{"15", 15}, {"16", 16}, {"70", 70}};
  AllocationCore mixed(check);
  mixed.came_before({"nvidia.com/former"});
  auto resources = machine();
  resources.push_back(resource("pgpu", {}, EnvPrefix::none));
  mixed.replace(resources);
  mixed.reconcile(
      std::vector<Holding>{
          {"nvidia.com/gpu", {"70"}}, {"nvidia.com/former", {"15"}}, {"nvidia.com/pgpu", {"16"}}},
      {});
  const auto snapshot = mixed.snapshot();
  EXPECT_FALSE(snapshot->resources.at(0)->devices.at(0).healthy());
  EXPECT_FALSE(snapshot->resources.at(0)->devices.at(1).healthy());
  EXPECT_TRUE(snapshot->resources.at(2)->devices.at(0).healthy());
}

TEST_F(AllocationCoreTest, FindsWhatIsLostByItsNameOnTheHostToo) {
  auto numbered = device("15", 15);
  numbered.sysfs_name = "0000:01:00.0";
  const std::vector<Resource> kata = {resource("pgpu", {numbered}, EnvPrefix::none)};
  core.replace(kata);
  core.replace({}, std::vector<NotAdvertised>{{"0000:01:00.0", "its driver is nouveau"}});
  EXPECT_EQ(reason("15"), "its driver is nouveau");
}

TEST_F(AllocationCoreTest, KeepsAnAllocatedDeviceListedWhenTheHostLosesIt) {
  ASSERT_TRUE(allocate("CARD", {"0000:01:00.0"}));
  core.replace({});
  EXPECT_EQ(reason("0000:01:00.0"), "not to be had on the host any more, and still allocated");
  EXPECT_EQ(reason("0000:02:00.0"), "not listed");
  core.replace(machine());
  EXPECT_EQ(reason("0000:01:00.0"), "");
  EXPECT_TRUE(allocated("0000:01:00.0"));
  EXPECT_NE(reason("0000:01:00.1"), "");

  core.replace({});
  reconcile({}, core.ticket());
  EXPECT_EQ(reason("0000:01:00.0"), "not listed");
}

TEST_F(AllocationCoreTest, FindsWhatItHasKeptAmongWhatTheHostHasNow) {
  ASSERT_TRUE(allocate("CARD", {"0000:01:00.0"}));
  core.replace(
      std::vector<Resource>{resource("CARD", {device("0000:02:00.0", 16), device("0000:03:00.0", 17)})});
  reconcile({{"nvidia.com/CARD", {"0000:01:00.0"}, "ns/pod"}}, core.ticket());
  EXPECT_TRUE(allocated("0000:01:00.0")) << "the kubelet names it";
  const auto again = allocate("CARD", {"0000:01:00.0"});
  ASSERT_FALSE(again);
  EXPECT_THAT(again.error().message, HasSubstr("not to be had on the host any more"));
  for (const char* const id : {"0000:02:00.0", "0000:03:00.0"}) EXPECT_TRUE(allocate("CARD", {id})) << id;
}

// To the kubelet, which counts by resource, it is free under another name.
TEST_F(AllocationCoreTest, KeepsWhatIsHeldUnderTheNameThatItWasAskedForBy) {
  ASSERT_TRUE(allocate("VGPU", {"uuid-1"}));
  const std::vector<Resource> renamed = {
      resource("OTHER", {device("uuid-1", 70), device("uuid-2", 71)}, EnvPrefix::mdev_pci_resource)};
  for (int again = 0; again < 2; ++again) {
    core.replace(renamed);
    EXPECT_EQ(reason("uuid-1"), "nvidia.com/OTHER now, and still allocated as it was");
    EXPECT_TRUE(allocated("uuid-1"));
    const auto second = allocate("OTHER", {"uuid-1"});
    ASSERT_FALSE(second);
    EXPECT_THAT(second.error().message,
                HasSubstr("its IOMMU group 70 is held: uuid-1 of nvidia.com/VGPU is allocated"));
  }
  core.replace(
      std::vector<Resource>{resource("OTHER", {device("uuid-1", 72)}, EnvPrefix::mdev_pci_resource)});
  EXPECT_FALSE(allocate("OTHER", {"uuid-1"})) << "whatever group it is in now";
  reconcile({}, core.ticket());
  EXPECT_EQ(reason("uuid-1"), "");
  EXPECT_TRUE(allocate("OTHER", {"uuid-1"}));
}

TEST_F(AllocationCoreTest, ListsWhatIsLostUnhealthyUntilItIsBackOrGone) {
  const std::vector<NotAdvertised> lost = {{"0000:01:00.0", "its driver is nouveau"},
                                           {"other", "never advertised"}};
  core.replace({}, lost);
  EXPECT_EQ(reason("0000:01:00.0"), "its driver is nouveau");
  EXPECT_EQ(reason("0000:02:00.0"), "not listed") << "gone altogether";
  EXPECT_EQ(reason("other"), "not listed");
  EXPECT_THAT(allocate("CARD", {"0000:01:00.0"}).error().message,
              HasSubstr("Unhealthy: its driver is nouveau"));
  core.replace(machine());
  EXPECT_EQ(reason("0000:01:00.0"), "");
  core.replace({}, lost);
  core.replace({});
  EXPECT_EQ(reason("0000:01:00.0"), "not listed");
}

TEST_F(AllocationCoreTest, KeepsWhatIsLostWhileAllocatedAndAfter) {
  ASSERT_TRUE(allocate("CARD", {"0000:01:00.0"}));
  core.replace({}, std::vector<NotAdvertised>{{"0000:01:00.0", "off the bus"}});
  EXPECT_EQ(reason("0000:01:00.0"), "off the bus");
  EXPECT_TRUE(allocated("0000:01:00.0"));
  reconcile({}, core.ticket());
  EXPECT_EQ(reason("0000:01:00.0"), "off the bus") << "still on the host";
  EXPECT_FALSE(allocated("0000:01:00.0"));
}

TEST_F(AllocationCoreTest, ListsWhatTheHostHasTakenBackOnlyWhileItIsAllocated) {
  ASSERT_TRUE(allocate("CARD", {"0000:01:00.0"}));
  const std::vector<NotAdvertised> back = {{"0000:01:00.0", "its driver is nvidia"},
                                           {"0000:02:00.0", "its driver is nvidia"}};
  core.replace({}, {}, back);
  EXPECT_EQ(reason("0000:02:00.0"), "not listed") << "nobody had it";
  EXPECT_EQ(reason("0000:01:00.0"), "its driver is nvidia");
  EXPECT_TRUE(allocated("0000:01:00.0"));
  EXPECT_TRUE(core.snapshot()->awaits_release);
  core.replace({}, {}, back);
  EXPECT_EQ(reason("0000:01:00.0"), "its driver is nvidia") << "and after the next scan";
  reconcile({}, core.ticket());
  EXPECT_EQ(reason("0000:01:00.0"), "not listed");
  EXPECT_FALSE(core.snapshot()->awaits_release);
  core.replace(machine());
  EXPECT_EQ(reason("0000:01:00.0"), "") << "given to VMs again";
}

TEST_F(AllocationCoreTest, AwaitsTheReleaseOfWhatIsUnfitThoughItIsNotGone) {
  ASSERT_TRUE(allocate("CARD", {"0000:01:00.0"}));
  core.replace({}, {}, std::vector<NotAdvertised>{{"0000:01:00.0", "its driver is nvidia"}});
  const std::vector<NotAdvertised> driverless = {{"0000:01:00.0", "it has no driver"}};
  core.replace({}, driverless);
  EXPECT_EQ(reason("0000:01:00.0"), "it has no driver");
  EXPECT_TRUE(allocated("0000:01:00.0"));
  EXPECT_TRUE(core.snapshot()->awaits_release);
  reconcile({}, core.ticket());
  EXPECT_FALSE(allocated("0000:01:00.0"));
  EXPECT_FALSE(core.snapshot()->awaits_release);
}

TEST_F(AllocationCoreTest, KeepsAResourceOnceNamed) {
  core.replace({});
  const auto snapshot = core.snapshot();
  ASSERT_EQ(snapshot->resources.size(), 3U);
  EXPECT_EQ(snapshot->resources.front()->name.text(), "nvidia.com/CARD");
  EXPECT_THAT(snapshot->resources.front()->devices, IsEmpty());
}

TEST_F(AllocationCoreTest, GivesNumaNodesForAllOfAResourceOrForNone) {
  core.replace(std::vector<Resource>{resource("KNOWN", {device("a", 1, 0), device("b", 2, 1)}),
                                     resource("PARTLY", {device("c", 3, 0), device("d", 4)})});
  const auto known = core.watch("nvidia.com/KNOWN", {});
  const auto partly = core.watch("nvidia.com/PARTLY", {});
  ASSERT_TRUE(known && partly);
  const auto list = (*known)->take();
  EXPECT_EQ(list->devices.at(0).numa_node, 0);
  EXPECT_EQ(list->devices.at(1).numa_node, 1);
  for (const auto& device : (*partly)->take()->devices)
    EXPECT_EQ(device.numa_node, std::nullopt) << device.id;
}

TEST_F(AllocationCoreTest, StreamsTheListAndThenEachChange) {
  int wakes = 0;
  const auto stream = core.watch("nvidia.com/AUDIO", [&] { ++wakes; });
  ASSERT_TRUE(stream);
  ASSERT_NE((*stream)->take(), nullptr);
  EXPECT_EQ((*stream)->take(), nullptr);

  ASSERT_TRUE(allocate("CARD", {"0000:01:00.0"}));
  EXPECT_EQ(wakes, 1);
  const auto list = (*stream)->take();
  ASSERT_NE(list, nullptr);
  EXPECT_FALSE(list->devices.at(0).healthy());
  EXPECT_TRUE(list->devices.at(1).healthy());

  core.replace(machine());
  EXPECT_EQ(wakes, 1) << "nothing new to tell";
  EXPECT_EQ((*stream)->take(), nullptr);
}

TEST_F(AllocationCoreTest, KeepsOnlyTheNewestListForASlowReader) {
  const auto stream = core.watch("nvidia.com/AUDIO", {});
  ASSERT_TRUE(allocate("CARD", {"0000:01:00.0"}));
  ASSERT_TRUE(allocate("CARD", {"0000:02:00.0"}));
  const auto list = (*stream)->take();
  EXPECT_FALSE(list->devices.at(0).healthy());
  EXPECT_FALSE(list->devices.at(1).healthy());
  EXPECT_EQ((*stream)->take(), nullptr);
}

TEST_F(AllocationCoreTest, ReportsNoChangeThatTheKubeletCannotSee) {
  int wakes = 0;
  const auto stream = core.watch("nvidia.com/CARD", [&] { ++wakes; });
  ASSERT_TRUE(allocate("CARD", {"0000:01:00.0"}));
  EXPECT_EQ(wakes, 0) << "the kubelet knows what it has allocated";
}

TEST_F(AllocationCoreTest, WatchesNoUnknownResource) {
  EXPECT_EQ(core.watch("nvidia.com/OTHER", {}).error().code, Errc::not_found);
}

TEST_F(AllocationCoreTest, CountsOneGenerationForEachChange) {
  const auto before = core.snapshot();
  core.replace(machine());
  EXPECT_EQ(core.snapshot(), before);
  ASSERT_TRUE(allocate("CARD", {"0000:01:00.0"}));
  EXPECT_EQ(core.snapshot()->generation, before->generation + 1);
  EXPECT_TRUE(before->resources.at(1)->devices.at(0).healthy()) << "a snapshot never changes";
}

TEST_F(AllocationCoreTest, PrefersWithWhatItKnowsOfTheDevices) {
  core.replace(
      std::vector<Resource>{resource("CARD", {device("a", 1, 0), device("b", 2, 1), device("c", 3, 1)})});
  const auto chosen = core.prefer("nvidia.com/CARD", Ids{"a", "b", "c"}, Ids{}, 2);
  ASSERT_TRUE(chosen);
  EXPECT_THAT(*chosen, ElementsAre("b", "c"));
  EXPECT_EQ(core.prefer("nvidia.com/OTHER", Ids{}, Ids{}, 1).error().code, Errc::not_found);
}

// The kubelet asks before it has read the list that says so.
TEST_F(AllocationCoreTest, PrefersNothingThatItWouldNotGive) {
  core.replace(std::vector<Resource>{resource("CARD", {device("a", 1), device("b", 1), device("c", 2)})});
  ASSERT_TRUE(allocate("CARD", {"a"}));
  EXPECT_THAT(*core.prefer("nvidia.com/CARD", Ids{"b", "c"}, Ids{}, 1), ElementsAre("c"));
  EXPECT_THAT(*core.prefer("nvidia.com/CARD", Ids{"b", "c"}, Ids{"b"}, 1), ElementsAre("b"));
  EXPECT_THAT(*core.prefer("nvidia.com/CARD", Ids{"b", "c"}, Ids{}, 2), ElementsAre("b", "c"));
  EXPECT_THAT(*core.prefer("nvidia.com/CARD", Ids{"a", "b", "c"}, Ids{}, 1), ElementsAre("a"))
      << "the kubelet says that it is free, and it goes with its group";
}

}  // namespace
}  // namespace ferry::plugin
