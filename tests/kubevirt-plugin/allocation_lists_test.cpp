// SPDX-License-Identifier: Apache-2.0
// The lists for the kubelet: lost devices, resources, NUMA nodes, streams.
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
  EXPECT_FALSE(list->devices.at(0).healthy);
  EXPECT_TRUE(list->devices.at(1).healthy);

  core.replace(machine());
  EXPECT_EQ(wakes, 1) << "nothing new to tell";
  EXPECT_EQ((*stream)->take(), nullptr);
}

TEST_F(AllocationCoreTest, KeepsOnlyTheNewestListForASlowReader) {
  const auto stream = core.watch("nvidia.com/AUDIO", {});
  ASSERT_TRUE(allocate("CARD", {"0000:01:00.0"}));
  ASSERT_TRUE(allocate("CARD", {"0000:02:00.0"}));
  const auto list = (*stream)->take();
  EXPECT_FALSE(list->devices.at(0).healthy);
  EXPECT_FALSE(list->devices.at(1).healthy);
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
  EXPECT_TRUE(before->resources.at(1)->devices.at(0).healthy) << "a snapshot never changes";
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
