// SPDX-License-Identifier: Apache-2.0
// Allocations of earlier processes and of other plugins, which the kubelet's list of pods names.
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "tests/kubevirt-plugin/allocation_node.h"

namespace ferry::plugin {
namespace {

using namespace core_test;
using testing::ElementsAre;
using testing::IsEmpty;

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
  EXPECT_FALSE(late.snapshot()->resources.at(1)->devices.at(0).healthy) << "its group's audio";
  late.reconcile({}, {.asked = late.ticket(), .settled = late.ticket()});
  EXPECT_FALSE(late.snapshot()->resources.at(0)->devices.at(0).allocated);
}

TEST_F(AllocationCoreTest, NamesWhatAPodHasOfAResourceThatDoesNotListIt) {
  check.groups = {{"0000:03:00.0", 17}, {"0000:04:00.0", 18}};
  const std::vector<Holding> held = {{"nvidia.com/CARD", {"0000:03:00.0"}},
                                     {"nvidia.com/CARD", {"on another host"}},
                                     {"example.com/nic", {"0000:04:00.0"}}};
  reconcile(held, 0);
  const ListedDevice unlisted{.resource = "nvidia.com/CARD",
                              .id = "0000:03:00.0",
                              .iommu_group = 17,
                              .allocated = true,
                              .healthy = false,
                              .reason = "still allocated, and not advertised now",
                              .awaits_release = true};
  EXPECT_THAT(core.snapshot()->unlisted, ElementsAre(unlisted));
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
  EXPECT_FALSE(snapshot->resources.at(0)->devices.at(0).healthy);
  EXPECT_FALSE(snapshot->resources.at(0)->devices.at(1).healthy);
  EXPECT_TRUE(snapshot->resources.at(2)->devices.at(0).healthy);
}

}  // namespace
}  // namespace ferry::plugin
