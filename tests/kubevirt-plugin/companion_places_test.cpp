// SPDX-License-Identifier: Apache-2.0
// Companions that are asked for beside their GPU: what the core makes of them.
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "kubevirt-plugin/advertised_file.h"
#include "kubevirt-plugin/allocation/allocation_core.h"
#include "tests/kubevirt-plugin/core_fixture.h"

namespace ferry::plugin {
namespace {

using namespace core_test;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;

constexpr const char* kAudio = "nvidia.com/AUDIO";
constexpr const char* kUsb = "nvidia.com/USB";

Companion companion(const std::string& address, const std::string& part) {
  return {.address = address,
          .model = "10de:22ba",
          .driver = "vfio-pci",
          .resource = "nvidia.com/" + part,
          .env_name = "PCI_RESOURCE_NVIDIA_COM_" + part};
}

ScannedDevice card(const std::string& slot, std::uint32_t group, std::vector<Companion> companions) {
  auto gpu = device(slot + ".0", group, static_cast<int>(group % 2));
  gpu.companions = std::move(companions);
  return gpu;
}

Resource places(const std::string& part) {
  auto made = resource(part, {});
  made.places = true;
  return made;
}

// Three cards of one model: the first has audio, the second audio and USB, the third neither.
class CompanionPlaces : public testing::Test {
 protected:
  static std::vector<Resource> machine() {
    return {resource("CARD", {card("0000:01:00", 15, {companion("0000:01:00.1", "AUDIO")}),
                              card("0000:02:00", 16,
                                   {companion("0000:02:00.1", "AUDIO"), companion("0000:02:00.2", "USB")}),
                              card("0000:03:00", 17, {})}),
            places("AUDIO"), places("USB")};
  }
  void SetUp() override { core.replace(machine()); }

  Result<std::vector<Allocation>> allocate(const std::string& resource, const Ids& ids) {
    return allocate_from(core, resource, std::vector<Ids>{ids});
  }
  ListedResource listed(const std::string& resource) const {
    for (const auto& one : core.snapshot()->resources)
      if (one->name.text() == resource) return *one;
    ADD_FAILURE() << resource << " is not listed";
    return {.name = *ResourceName::parse(resource), .devices = {}};
  }
  /// Of each place, why it is Unhealthy.
  std::vector<std::pair<std::string, std::string>> states(const std::string& resource) const {
    std::vector<std::pair<std::string, std::string>> out;
    for (const auto& device : listed(resource).devices) out.emplace_back(device.id, device.reason);
    return out;
  }

  TestCheck check;
  AllocationCore core{check};
};

TEST_F(CompanionPlaces, AreAsManyAsThereAreGpusWithSuchACompanion) {
  EXPECT_THAT(states(kAudio), ElementsAre(Pair("place-0000:01:00.1", ""), Pair("place-0000:02:00.1", "")));
  EXPECT_THAT(states(kUsb), ElementsAre(Pair("place-0000:02:00.2", "")));
  EXPECT_TRUE(listed(kAudio).places);
  EXPECT_FALSE(listed("nvidia.com/CARD").places);
  for (const auto& place : listed(kAudio).devices)
    EXPECT_EQ(place.numa_node, std::nullopt) << "any GPU goes with it";
}

TEST_F(CompanionPlaces, AreNothingThatAPodIsGiven) {
  const auto answer = allocate(kAudio, {"place-0000:02:00.1"});
  ASSERT_TRUE(answer) << answer.error().message;
  ASSERT_EQ(answer->size(), 1U);
  EXPECT_EQ(answer->front().env_name, "");
  EXPECT_THAT(answer->front().companions, IsEmpty());
  EXPECT_THAT(answer->front().nodes, IsEmpty());
  EXPECT_THAT(answer->front().ids, ElementsAre("place-0000:02:00.1"));
  EXPECT_TRUE(allocate("nvidia.com/CARD", {"0000:02:00.0"})) << "nor do they hold a group";
}

TEST_F(CompanionPlaces, HaveTheGpusAnswerNameTheirCompanionsInTheOrderOfTheGpus) {
  const auto answer = allocate("nvidia.com/CARD", {"0000:02:00.0", "0000:03:00.0", "0000:01:00.0"});
  ASSERT_TRUE(answer) << answer.error().message;
  EXPECT_EQ(answer->front().env_value, "0000:02:00.0,0000:03:00.0,0000:01:00.0");
  EXPECT_THAT(answer->front().companions,
              ElementsAre(Pair("PCI_RESOURCE_NVIDIA_COM_AUDIO", "0000:02:00.1,0000:01:00.1"),
                          Pair("PCI_RESOURCE_NVIDIA_COM_USB", "0000:02:00.2")));
  const auto separate =
      allocate_from(core, "nvidia.com/CARD", std::vector<Ids>{{"0000:02:00.0"}, {"0000:01:00.0"}});
  ASSERT_TRUE(separate);
  EXPECT_THAT(separate->back().companions, ElementsAre(Pair("PCI_RESOURCE_NVIDIA_COM_AUDIO", "0000:01:00.1")))
      << "each container its own";
}

TEST_F(CompanionPlaces, AreTakenByWhoeverHasTheGpuOrNot) {
  ASSERT_TRUE(allocate("nvidia.com/CARD", {"0000:01:00.0"}));
  EXPECT_THAT(states(kAudio), ElementsAre(Pair("place-0000:01:00.1", ""), Pair("place-0000:02:00.1", "")))
      << "the kubelet counts them";
  EXPECT_TRUE(allocate(kAudio, {"place-0000:02:00.1"}));
  EXPECT_TRUE(allocate(kAudio, {"place-0000:02:00.1"})) << "the pod before has ended, as the kubelet knows";
}

TEST_F(CompanionPlaces, AreAsHealthyAsTheirGpus) {
  auto broken = machine();
  broken[0].devices[0].problem = "off the bus";
  core.replace(broken);
  EXPECT_THAT(states(kAudio), ElementsAre(Pair("place-0000:01:00.1", "0000:01:00.0: off the bus"),
                                          Pair("place-0000:02:00.1", "")));
  EXPECT_TRUE(allocate(kAudio, {"place-0000:01:00.1"})) << "its pod may have the other GPU";
  core.replace(machine());
  EXPECT_THAT(states(kAudio), ElementsAre(Pair("place-0000:01:00.1", ""), Pair("place-0000:02:00.1", "")));
}

TEST_F(CompanionPlaces, AreUnhealthyWhileAnotherHasTheGroup) {
  auto both = machine();
  both.push_back(resource("pgpu", {device("16", 16)}, EnvPrefix::none));
  core.replace(both);
  int wakes = 0;
  const auto stream = core.watch(kUsb, [&] { ++wakes; });
  ASSERT_TRUE(stream);
  (*stream)->take();
  ASSERT_TRUE(allocate("nvidia.com/pgpu", {"16"}));
  EXPECT_THAT(states(kUsb),
              ElementsAre(Pair("place-0000:02:00.2",
                               "0000:02:00.0: held back: 16 of its IOMMU group 16 is allocated")));
  EXPECT_EQ(wakes, 1) << "the kubelet gets a new list";
  const auto list = (*stream)->take();
  ASSERT_NE(list, nullptr);
  EXPECT_FALSE(list->devices.at(0).healthy);
}

TEST_F(CompanionPlaces, StayForAsLongAsTheirGpuIsListed) {
  ASSERT_TRUE(allocate("nvidia.com/CARD", {"0000:02:00.0"}));
  core.replace({}, std::vector<NotAdvertised>{{"0000:01:00.0", "no driver is bound to it"}});
  EXPECT_THAT(states(kAudio),
              ElementsAre(Pair("place-0000:01:00.1", "0000:01:00.0: no driver is bound to it"),
                          Pair("place-0000:02:00.1", HasSubstr("still allocated"))));
  core.reconcile({}, {.asked = core.ticket(), .settled = core.ticket()});
  EXPECT_THAT(states(kAudio), ElementsAre(Pair("place-0000:01:00.1", HasSubstr("no driver"))));
  EXPECT_FALSE(allocate(kAudio, {"place-0000:02:00.1"})) << "it is not listed";
}

TEST_F(CompanionPlaces, RefuseWhatIsNoRequest) {
  EXPECT_EQ(allocate_from(core, kAudio, {}).error().code, Errc::usage);
  EXPECT_EQ(allocate(kAudio, {}).error().code, Errc::usage);
  EXPECT_EQ(allocate(kAudio, {"place-0000:01:00.1", "place-0000:01:00.1"}).error().code, Errc::usage);
  const auto unknown = allocate(kAudio, {"0000:01:00.1"});
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code, Errc::not_found);
  EXPECT_EQ(unknown.error().message, "allocate nvidia.com/AUDIO: 0000:01:00.1: no such device is advertised");
}

TEST_F(CompanionPlaces, ArePreferredInOneOrder) {
  for (const Ids& available : {Ids{"place-b", "place-a", "place-c"}, Ids{"place-c", "place-b", "place-a"}}) {
    const auto chosen = core.prefer(kAudio, available, Ids{}, 2);
    ASSERT_TRUE(chosen);
    EXPECT_THAT(*chosen, ElementsAre("place-a", "place-b"));
  }
}

// After a restart of this process.
TEST_F(CompanionPlaces, HoldNothingWhenTheKubeletListsThem) {
  const std::vector<Holding> held = {{"nvidia.com/CARD", {"0000:01:00.0"}}, {kAudio, {"place-0000:02:00.1"}}};
  core.reconcile(held, {.asked = core.ticket()});
  EXPECT_TRUE(core.snapshot()->resources.at(0)->devices.at(0).allocated);
  EXPECT_FALSE(core.snapshot()->awaits_release);
  EXPECT_THAT(core.snapshot()->unlisted, IsEmpty());
  EXPECT_THAT(states(kAudio), ElementsAre(Pair("place-0000:01:00.1", ""), Pair("place-0000:02:00.1", "")));
  EXPECT_TRUE(allocate("nvidia.com/CARD", {"0000:02:00.0"}));
  EXPECT_TRUE(allocate(kAudio, {"place-0000:01:00.1"}));
}

// Given before the restart as a device of the resource that has places now.
TEST_F(CompanionPlaces, AreNoneWhereAPodHasTheCompanionItself) {
  check.groups = {{"0000:01:00.1", 15}};
  core.reconcile(std::vector<Holding>{{kAudio, {"0000:01:00.1"}}}, {.asked = core.ticket()});
  EXPECT_EQ(allocate("nvidia.com/CARD", {"0000:01:00.0"}).error().code, Errc::refused);
  EXPECT_THAT(states(kAudio), ElementsAre(Pair("place-0000:01:00.1", HasSubstr("held back")),
                                          Pair("place-0000:02:00.1", "")));
}

// Who moves devices looks there for what a pod has.
TEST_F(CompanionPlaces, AreNoDevicesInTheAdvertisedFile) {
  ASSERT_TRUE(allocate(kAudio, {"place-0000:02:00.1"}));
  const auto advertised = advertised_resources(*core.snapshot(), {}, {}, 1);
  const auto text = api::advertised_resources_text(advertised);
  EXPECT_THAT(text, HasSubstr("\"places\""));
  EXPECT_THAT(text, HasSubstr("place-0000:02:00.1"));
  EXPECT_THAT(allocated_by(advertised), IsEmpty());
}

// Two names on the way from devices to places: what a name was first it stays until the next start.
TEST_F(CompanionPlaces, DoNotTakeTheNameOfDevices) {
  ASSERT_TRUE(allocate("nvidia.com/CARD", {"0000:03:00.0"}));
  auto renamed = machine();
  renamed[0] = resource("OTHER", {card("0000:02:00", 16, {companion("0000:02:00.1", "CARD")})});
  renamed[1] = places("CARD");
  core.replace(renamed);
  EXPECT_FALSE(listed("nvidia.com/CARD").places);
  EXPECT_EQ(listed("nvidia.com/CARD").devices.size(), 1U) << "the one that a pod has";
  EXPECT_THAT(states(kAudio), IsEmpty());
}

}  // namespace
}  // namespace ferry::plugin
