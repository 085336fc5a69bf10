// SPDX-License-Identifier: Apache-2.0
#include "vfio/bind/rebind_plan.h"

#include <gmock/gmock.h>

#include "tests/vfio/machines.h"
#include "vfio/bind/driver_choice.h"
#include "vfio/judgement/unit_facts.h"

namespace ferry::vfio {
namespace {

using test::at;
using test::FakeKernel;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class RebindPlanTest : public testing::Test {
 protected:
  RebindPlanTest() { test::add_host_drivers(kernel_); }

  RebindPlan bind(const std::vector<std::string>& devices, const std::set<std::string>& with = {}) {
    RebindRequest request;
    for (const auto& device : devices) request.accelerators.push_back(at(device));
    for (const auto& device : with) request.with.insert(at(device));
    request.untouchable = untouchable_;
    request.as_before = as_before_;
    request.sheds_functions = sheds_;
    Inventory inventory = scan(kernel_).value();
    read_unit_facts(kernel_, test::gpu_rules(), inventory);
    read_overrides(kernel_, kernel_, concerned(inventory, request.accelerators), inventory);
    return plan_bind(inventory, test::gpu_rules(), request, use_, VfioDriverTable::read(kernel_), journal_,
                     stuck_);
  }
  static std::vector<std::string> texts(const std::vector<Step>& steps) {
    std::vector<std::string> out;
    out.reserve(steps.size());
    for (const Step& step : steps) out.push_back(step.text());
    return out;
  }
  static std::map<std::string, MemberRole> roles(const Rebind& rebind) {
    std::map<std::string, MemberRole> out;
    for (const Member& member : rebind.members) out[member.address.text()] = member.role;
    return out;
  }

  FakeKernel kernel_;
  UseReport use_;
  UndoJournal journal_;
  std::set<std::string> stuck_;
  std::map<PciAddress, std::string> untouchable_;
  std::map<PciAddress, OnVfio> as_before_;
  std::set<PciAddress> sheds_;
};

// Of somebody else's: another driver than the one that fits, and no override; or one that is no longer there.
TEST_F(RebindPlanTest, GivesWhatGoesToVfioAgainWhatItHadThere) {
  kernel_.add_driver({.name = "vfio-pci", .vfio = true});
  kernel_.add_driver({.name = "other-vfio", .vfio = true});
  kernel_.add_function({.address = "0000:65:00.0", .group = 41, .driver = "nouveau"});
  as_before_ = {{at("0000:65:00.0"), {.driver = "other-vfio", .driver_override = {}}}};
  const RebindPlan plan = bind({"0000:65:00.0"});
  ASSERT_EQ(plan.rebinds.size(), 1U);
  EXPECT_THAT(texts(plan.rebinds[0].steps),
              ElementsAre("set driver_override of 0000:65:00.0 to other-vfio",  //
                          "unbind 0000:65:00.0 from nouveau",                   //
                          "bind 0000:65:00.0 to other-vfio",                    //
                          "clear driver_override of 0000:65:00.0"));
  EXPECT_EQ(plan.rebinds[0].members[0].driver_after, "other-vfio");

  as_before_ = {{at("0000:65:00.0"), {.driver = "unloaded", .driver_override = "vfio-pci"}}};
  EXPECT_THAT(texts(bind({"0000:65:00.0"}).rebinds.at(0).steps),
              ElementsAre("set driver_override of 0000:65:00.0 to vfio-pci",  //
                          "unbind 0000:65:00.0 from nouveau",                 //
                          "bind 0000:65:00.0 to vfio-pci"));
}

TEST_F(RebindPlanTest, RebindsEveryFunctionOfACardAndLeavesItsPort) {
  test::add_four_function_card(kernel_);
  const RebindPlan plan = bind({"0000:65:00.0"});
  EXPECT_THAT(plan.refusals, IsEmpty());
  ASSERT_EQ(plan.rebinds.size(), 1U);
  EXPECT_THAT(texts(plan.rebinds[0].steps),
              ElementsAre("load module vfio_pci",                             //
                          "set driver_override of 0000:65:00.1 to vfio-pci",  //
                          "set driver_override of 0000:65:00.2 to vfio-pci",  //
                          "set driver_override of 0000:65:00.3 to vfio-pci",  //
                          "set driver_override of 0000:65:00.0 to vfio-pci",  //
                          "unbind 0000:65:00.1 from snd_hda_intel",           //
                          "unbind 0000:65:00.2 from xhci_hcd",                //
                          "unbind 0000:65:00.0 from nouveau",                 //
                          "bind 0000:65:00.1 to vfio-pci", "bind 0000:65:00.2 to vfio-pci",
                          "bind 0000:65:00.3 to vfio-pci", "bind 0000:65:00.0 to vfio-pci"));
  EXPECT_THAT(roles(plan.rebinds[0]), ElementsAre(testing::Pair("0000:64:00.0", MemberRole::bridge),
                                                  testing::Pair("0000:65:00.0", MemberRole::accelerator),
                                                  testing::Pair("0000:65:00.1", MemberRole::companion),
                                                  testing::Pair("0000:65:00.2", MemberRole::companion),
                                                  testing::Pair("0000:65:00.3", MemberRole::companion)));
}

TEST_F(RebindPlanTest, TakesCompanionsThatSitInOtherGroups) {
  kernel_.add_function({.address = "0000:01:00.0", .group = 5, .driver = "nouveau"});
  kernel_.add_function(test::kinds::kAudio, "0000:01:00.1", 6, "snd_hda_intel");
  const RebindPlan plan = bind({"0000:01:00.0"});
  ASSERT_EQ(plan.rebinds.size(), 1U);
  EXPECT_THAT(plan.rebinds[0].groups, ElementsAre(5, 6));
  EXPECT_THAT(plan.rebinds[0].rebinding(), ElementsAre(at("0000:01:00.0"), at("0000:01:00.1")));
}

// A board with two GPUs as functions of one device, each in a group of its own, and one sound card for both.
TEST_F(RebindPlanTest, RebindsOneOfTwoGpusInASlotWithoutTheOther) {
  kernel_.add_function({.address = "0000:01:00.0", .group = 5, .driver = "nouveau"});
  kernel_.add_function({.address = "0000:01:00.1", .group = 6, .driver = "nouveau"});
  kernel_.add_function(test::kinds::kAudio, "0000:01:00.2", 7, "snd_hda_intel");
  const RebindPlan one = bind({"0000:01:00.1"});
  EXPECT_THAT(one.refusals, IsEmpty());
  ASSERT_EQ(one.rebinds.size(), 1U);
  EXPECT_THAT(one.rebinds[0].groups, ElementsAre(6, 7)) << "the sound card's driver would use it meanwhile";
  EXPECT_THAT(one.rebinds[0].rebinding(), ElementsAre(at("0000:01:00.1"), at("0000:01:00.2")));

  const RebindPlan both = bind({"0000:01:00.0", "0000:01:00.1"});
  EXPECT_THAT(both.refusals, IsEmpty());
  ASSERT_EQ(both.rebinds.size(), 1U) << "they share the sound card";
  EXPECT_THAT(both.rebinds[0].devices, ElementsAre(at("0000:01:00.0"), at("0000:01:00.1")));
  EXPECT_THAT(both.rebinds[0].rebinding(),
              ElementsAre(at("0000:01:00.0"), at("0000:01:00.1"), at("0000:01:00.2")));
}

/// A slot with a GPU, its audio, a network card and a disk, each in a group of its own; and in another slot a
/// USB controller that is linked to the GPU.
class SharedSlot : public RebindPlanTest {
 protected:
  SharedSlot() {
    kernel_.add_driver({.name = "mlx5_core", .ids = {"15b3:1021"}});
    kernel_.add_function({.address = "0000:65:00.0",
                          .group = 41,
                          .driver = "nouveau",
                          .consumers = {"0000:65:00.1", "0000:66:00.0"}});
    kernel_.add_function(test::kinds::kAudio, "0000:65:00.1", 42, "snd_hda_intel");
    kernel_.add_function(test::kinds::kNetworkCard, "0000:65:00.2", 43, "mlx5_core");
    kernel_.add_function(test::kinds::kDisk, "0000:65:00.3", 44, "nvme");
    kernel_.add_function(test::kinds::kUsb, "0000:66:00.0", 45, "xhci_hcd");
  }
};

TEST_F(SharedSlot, RebindsTheGpusOwnFunctionsAndNamesTheOthers) {
  const RebindPlan plan = bind({"0000:65:00.0"});
  ASSERT_EQ(plan.rebinds.size(), 1U);
  EXPECT_THAT(plan.rebinds[0].rebinding(), ElementsAre(at("0000:65:00.0"), at("0000:65:00.1")));
  EXPECT_THAT(
      plan.rebinds[0].notes,
      ElementsAre(HasSubstr("0000:65:00.2 (15b3:1021, class 0200, driver mlx5_core) is in the slot of "
                            "0000:65:00.0 and stays: it is none of the card's audio, USB or USB-C functions"),
                  HasSubstr("0000:65:00.3 (144d:a80a, class 0108, driver nvme)")));
}

TEST_F(SharedSlot, StaysWithItsNetworkFunctionThoughWithNamesIt) {
  const RebindPlan own_group = bind({"0000:65:00.0"}, {"0000:65:00.2"});
  ASSERT_EQ(own_group.rebinds.size(), 1U);
  EXPECT_THAT(own_group.rebinds[0].groups, ElementsAre(41, 42));
  kernel_.add_function(test::kinds::kNetworkCard, "0000:65:00.2", 41, "mlx5_core");
  kernel_.file("sys/bus/pci/devices/0000:65:00.2/vpd", "SMDL=");
  const RebindPlan shared = bind({"0000:65:00.0"}, {"0000:65:00.2"});
  EXPECT_THAT(shared.rebinds, IsEmpty());
  ASSERT_EQ(shared.refusals.size(), 1U);
  EXPECT_THAT(
      shared.refusals[0].reasons,
      ElementsAre("0000:65:00.2 (15b3:1021, class 0200, driver mlx5_core) shares the group and is not "
                  "part of the card"));
}

TEST_F(SharedSlot, RebindsWhatWithNamesThereAndBack) {
  kernel_.add_function({"1022:149c", 0x0c0330}, "0000:65:00.2", 43, "xhci_hcd");
  EXPECT_THAT(bind({"0000:65:00.0"}).rebinds.at(0).notes,
              testing::Contains(HasSubstr("stays: if it is of the card, --with 0000:65:00.2 binds it too")));
  const RebindPlan plan = bind({"0000:65:00.0"}, {"0000:65:00.2"});
  ASSERT_EQ(plan.rebinds.size(), 1U);
  EXPECT_EQ(roles(plan.rebinds[0]).at("0000:65:00.2"), MemberRole::taken_along);
  EXPECT_THAT(plan.rebinds[0].groups, ElementsAre(41, 42, 43));

  journal_.members[at("0000:65:00.2")] = {
      .ids = "1022:149c", .driver = "xhci_hcd", .driver_override = {}, .role = "taken_along"};
  RebindRequest request;
  request.accelerators = {at("0000:65:00.0")};
  const RebindPlan back =
      plan_unbind(scan(kernel_).value(), test::gpu_rules(), request, use_, journal_, stuck_);
  ASSERT_EQ(back.rebinds.size(), 1U);
  EXPECT_EQ(roles(back.rebinds[0]).at("0000:65:00.2"), MemberRole::taken_along);
}

// Builds before ADR 47 took a network card along, and their journals may have one.
TEST_F(SharedSlot, UnbindAsksWhoUsesANetworkCardThatAFormerBuildTookAlong) {
  kernel_.add_driver({.name = "vfio-pci", .vfio = true});
  kernel_.remove_function("0000:65:00.2");
  kernel_.add_function({.address = "0000:65:00.2",
                        .ids = "15b3:1021",
                        .class_code = 0x020000,
                        .group = 43,
                        .driver = "vfio-pci",
                        .driver_override = "vfio-pci"});
  for (const bool used : {false, true}) {
    if (used) {
      use_.users["0000:65:00.2"] = {
          {.kind = DeviceUser::Kind::virtual_machine, .name = "vm1", .pid = 7, .what = "/dev/vfio/43"}};
    }
    journal_.members[at("0000:65:00.2")] = {
        .ids = "15b3:1021", .driver = "mlx5_core", .driver_override = {}, .role = "taken_along"};
    RebindRequest request;
    request.accelerators = {at("0000:65:00.0")};
    const RebindPlan back =
        plan_unbind(scan(kernel_).value(), test::gpu_rules(), request, use_, journal_, stuck_);
    EXPECT_EQ(back.rebinds.size(), used ? 0U : 1U);
    EXPECT_EQ(back.refusals.size(), used ? 1U : 0U);
  }
}

// In the GPU's own group it keeps the group on the host, as any foreign device does.
TEST_F(SharedSlot, RefusesAForeignFunctionInTheGpusGroup) {
  kernel_.add_function(test::kinds::kDisk, "0000:65:00.4", 41, "nvme");
  const RebindPlan plan = bind({"0000:65:00.0"});
  ASSERT_EQ(plan.refusals.size(), 1U);
  EXPECT_THAT(plan.refusals[0].reasons,
              ElementsAre(HasSubstr("0000:65:00.4 (144d:a80a, class 0108, driver nvme) shares the group")));
}

TEST_F(RebindPlanTest, RefusesAGroupWithAForeignDeviceAndNamesIt) {
  kernel_.add_function({"10de:1db6", 0x030200}, "0000:05:01.0", 12, "nouveau");
  kernel_.add_function({.address = "0000:05:02.0", .ids = "1002:5046", .group = 12, .driver = "radeon"});
  const RebindPlan plan = bind({"0000:05:01.0"});
  EXPECT_THAT(plan.rebinds, IsEmpty());
  ASSERT_EQ(plan.refusals.size(), 1U);
  EXPECT_THAT(plan.refusals[0].devices, ElementsAre(at("0000:05:01.0")));
  EXPECT_THAT(plan.refusals[0].reasons,
              ElementsAre("0000:05:02.0 (1002:5046, class 0300, driver radeon) shares the "
                          "group and is not part of the card"));
  EXPECT_THAT(plan.refusals[0].hint, HasSubstr("unbind the driver of each such device"));
  EXPECT_THAT(bind({"0000:05:01.0"}, {"0000:05:02.0"}).rebinds, IsEmpty());
}

struct OfTheCard {
  const char* address;
  const char* ids;
  std::uint32_t class_code;
  bool goes_along;
};

TEST_F(RebindPlanTest, TakesAudioAndUsbOfTheCardAlongWhenAsked) {
  kernel_.add_function({.address = "0000:05:01.0", .group = 12, .driver = "nouveau"});
  for (const OfTheCard& one : {OfTheCard{"0000:06:00.0", "10de:22ba", 0x040300, true},
                               OfTheCard{"0000:06:00.0", "10de:1ad8", 0x0c0330, true},
                               OfTheCard{"0000:06:00.0", "10de:1ad9", 0x0c8000, true},
                               OfTheCard{"0000:05:01.3", "1022:149c", 0x0c0330, true},
                               OfTheCard{"0000:06:00.0", "1022:149c", 0x0c0330, false},
                               OfTheCard{"0000:06:00.1", "10de:22ba", 0x040300, false},
                               OfTheCard{"0000:05:01.3", "144d:a80a", 0x010802, false}}) {
    SCOPED_TRACE(one.address);
    SCOPED_TRACE(one.ids);
    kernel_.add_function({one.ids, one.class_code}, one.address, 12, "snd_hda_intel");
    const RebindPlan alone = bind({"0000:05:01.0"});
    ASSERT_EQ(alone.refusals.size(), 1U);
    const std::string with = std::string("if it is of the card, `--with ") + one.address + "` binds it too";
    EXPECT_EQ(alone.refusals[0].hint == with, one.goes_along);
    const RebindPlan plan = bind({"0000:05:01.0"}, {one.address});
    EXPECT_EQ(plan.rebinds.size(), one.goes_along ? 1U : 0U);
    if (one.goes_along) {
      EXPECT_THAT(plan.rebinds[0].rebinding(),
                  testing::UnorderedElementsAre(at("0000:05:01.0"), at(one.address)));
    }
    kernel_.remove_function(one.address);
  }
}

TEST_F(RebindPlanTest, RefusesTheOtherAcceleratorOfAGroupUnlessAskedFor) {
  kernel_.add_function({.address = "0000:05:01.0", .group = 12, .driver = "nouveau"});
  kernel_.add_function({.address = "0000:05:02.0", .ids = "10de:1db6", .group = 12, .driver = "nouveau"});
  const RebindPlan alone = bind({"0000:05:01.0"});
  ASSERT_EQ(alone.refusals.size(), 1U);
  EXPECT_EQ(alone.refusals[0].hint, "name all of them: --device 0000:05:01.0 --device 0000:05:02.0");
  const RebindPlan both = bind({"0000:05:01.0", "0000:05:02.0"});
  ASSERT_EQ(both.rebinds.size(), 1U);
  EXPECT_THAT(both.refusals, IsEmpty());
}

TEST_F(RebindPlanTest, LeavesADriverlessForeignerAloneAndSaysSo) {
  kernel_.add_function({.address = "0000:05:01.0", .group = 12, .driver = "nouveau"});
  kernel_.add_function({.address = "0000:06:00.0", .ids = "8086:1234", .class_code = 0x088000, .group = 12});
  const RebindPlan plan = bind({"0000:05:01.0"});
  ASSERT_EQ(plan.rebinds.size(), 1U);
  EXPECT_THAT(plan.rebinds[0].notes, ElementsAre(HasSubstr("0000:06:00.0")));
  EXPECT_THAT(plan.rebinds[0].rebinding(), ElementsAre(at("0000:05:01.0")));
}

TEST_F(RebindPlanTest, IsBlockedByAHostBridgeWithADriverButNotByOneWithout) {
  kernel_.add_driver({.name = "skx_uncore", .ids = {"8086:3e31"}});
  kernel_.add_function({.address = "0000:05:01.0", .group = 12, .driver = "nouveau"});
  kernel_.add_function({.address = "0000:00:00.0", .ids = "8086:3e30", .class_code = 0x060000, .group = 12});
  EXPECT_THAT(bind({"0000:05:01.0"}).refusals, IsEmpty());
  kernel_.add_function({"8086:3e31", 0x060000}, "0000:00:00.1", 12, "skx_uncore");
  const RebindPlan plan = bind({"0000:05:01.0"});
  ASSERT_EQ(plan.refusals.size(), 1U);
  EXPECT_THAT(plan.refusals[0].reasons, ElementsAre(HasSubstr("skx_uncore")));
}

TEST_F(RebindPlanTest, RefusesWhatIsInUseNamingTheDeviceUser) {
  test::add_four_function_card(kernel_);
  use_.users["0000:65:00.1"] = {{.kind = DeviceUser::Kind::process,
                                 .name = "pulseaudio",
                                 .pid = 77,
                                 .what = "/dev/snd/controlC0",
                                 .pod_uid = {}}};
  const RebindPlan plan = bind({"0000:65:00.0"});
  ASSERT_EQ(plan.refusals.size(), 1U);
  EXPECT_THAT(plan.refusals[0].reasons,
              ElementsAre("0000:65:00.1 is in use: process pulseaudio (pid 77) holds /dev/snd/controlC0"));
}

TEST_F(RebindPlanTest, HasNothingToDoForAUnitInUseThatIsOnVfioAlready) {
  kernel_.add_driver({.name = "vfio-pci", .vfio = true});
  kernel_.add_function(
      {.address = "0000:01:00.0", .group = 5, .driver = "vfio-pci", .driver_override = "vfio-pci"});
  use_.users["0000:01:00.0"] = {{.kind = DeviceUser::Kind::virtual_machine,
                                 .name = "vm",
                                 .pid = 9,
                                 .what = "/dev/vfio/5",
                                 .pod_uid = {}}};
  const RebindPlan plan = bind({"0000:01:00.0"});
  ASSERT_EQ(plan.rebinds.size(), 1U);
  EXPECT_THAT(plan.rebinds[0].steps, IsEmpty());
}

TEST_F(RebindPlanTest, AdoptsWhatAnotherToolPutOnVfioWithoutAWrite) {
  kernel_.add_driver({.name = "vfio-pci", .vfio = true});
  kernel_.add_driver({.name = "nv_variant_vfio_pci", .ids = {}, .vfio = true});
  kernel_.add_function({.address = "0000:01:00.0", .group = 5, .driver = "nv_variant_vfio_pci"});
  EXPECT_THAT(bind({"0000:01:00.0"}).rebinds.at(0).steps, IsEmpty());
}

TEST_F(RebindPlanTest, RefusesAPhysicalFunctionWithVirtualFunctions) {
  kernel_.add_function(
      {.address = "0000:01:00.0", .group = 5, .driver = "nouveau", .totalvfs = 16, .numvfs = 4});
  const RebindPlan plan = bind({"0000:01:00.0"});
  ASSERT_EQ(plan.refusals.size(), 1U);
  EXPECT_THAT(plan.refusals[0].reasons, ElementsAre("0000:01:00.0 has 4 virtual functions enabled"));
}

class VirtualFunctions : public RebindPlanTest {
 protected:
  /// A GPU with two virtual functions in its own slot.
  void add_gpu(unsigned own_group, unsigned first_group, unsigned second_group) {
    kernel_.add_function(
        {.address = "0000:01:00.0", .group = own_group, .driver = "nouveau", .totalvfs = 16, .numvfs = 2});
    kernel_.add_function(
        {.address = "0000:01:00.4", .group = first_group, .physical_function = "0000:01:00.0"});
    kernel_.add_function(
        {.address = "0000:01:00.5", .group = second_group, .physical_function = "0000:01:00.0"});
  }
};

TEST_F(VirtualFunctions, RebindAloneByTheirOwnGroup) {
  add_gpu(5, 6, 7);
  const RebindPlan plan = bind({"0000:01:00.4"});
  EXPECT_THAT(plan.refusals, IsEmpty());
  ASSERT_EQ(plan.rebinds.size(), 1U);
  EXPECT_THAT(plan.rebinds[0].groups, ElementsAre(6));
  EXPECT_THAT(texts(plan.rebinds[0].steps),
              ElementsAre("load module vfio_pci", "set driver_override of 0000:01:00.4 to vfio-pci",
                          "bind 0000:01:00.4 to vfio-pci"));
  EXPECT_EQ(bind({"0000:01:00.4", "0000:01:00.5"}).rebinds.size(), 2U) << "each is a unit of its own";
}

TEST_F(VirtualFunctions, StayWhileTheirPhysicalFunctionSharesTheGroup) {
  add_gpu(5, 5, 7);
  const RebindPlan plan = bind({"0000:01:00.4"});
  ASSERT_EQ(plan.refusals.size(), 1U);
  EXPECT_THAT(plan.refusals[0].reasons,
              ElementsAre("0000:01:00.0 (10de:2684, class 0300, driver nouveau) is the physical function of "
                          "0000:01:00.4 and shares its group"));
}

TEST_F(VirtualFunctions, AreNoObstacleInTheGroupOfTheirGpuIfTheyGoFirst) {
  add_gpu(5, 5, 7);
  kernel_.link("sys/devices/pci0000:00/0000:01:00.4/driver", "../../../bus/pci/drivers/nouveau");
  EXPECT_EQ(bind({"0000:01:00.0"}).refusals.size(), 1U);
  sheds_ = {at("0000:01:00.0")};
  const RebindPlan plan = bind({"0000:01:00.0"});
  EXPECT_THAT(plan.refusals, IsEmpty());
  ASSERT_EQ(plan.rebinds.size(), 1U);
  EXPECT_THAT(roles(plan.rebinds[0]), ElementsAre(testing::Pair("0000:01:00.0", MemberRole::accelerator)));
}

// The kernel would give the group away, and the driver uses the physical function all the same.
TEST_F(VirtualFunctions, StayThereToo) {
  add_gpu(5, 5, 7);
  const std::string devices = "sys/devices/pci0000:00/";
  kernel_.remove(devices + "0000:01:00.0/virtfn0");
  kernel_.link(devices + "0000:01:00.0/virtfn0", "../0000:01:00.5");
  kernel_.link(devices + "0000:01:00.5/driver", "../../../bus/pci/drivers/nouveau");
  kernel_.directory(devices + "0000:01:00.5/vfio-dev/vfio0");
  const RebindPlan plan = bind({"0000:01:00.4"});
  ASSERT_EQ(plan.refusals.size(), 1U);
  EXPECT_THAT(plan.refusals[0].reasons, ElementsAre(HasSubstr("is the physical function of 0000:01:00.4")));
  EXPECT_THAT(plan.refusals[0].blockers, testing::Optional(IsEmpty()));
}

TEST_F(VirtualFunctions, AreNamedWhereTheyShareAGroup) {
  kernel_.add_driver({.name = "nvidia-vf", .ids = {"10de:2684"}});
  add_gpu(5, 6, 6);
  ASSERT_TRUE(kernel_.write_attribute("sys/bus/pci/drivers/nvidia-vf/bind", "0000:01:00.5"));
  const RebindPlan plan = bind({"0000:01:00.4"});
  ASSERT_EQ(plan.refusals.size(), 1U);
  EXPECT_THAT(plan.refusals[0].hint, "name all of them: --device 0000:01:00.4 --device 0000:01:00.5");
}

// Vendor-specific VFIO: the driver serves VMs itself, and an unbind would end the vGPU.
TEST_F(VirtualFunctions, AreHomeOnTheDriverOfTheirGpu) {
  add_gpu(5, 6, 7);
  kernel_.link("sys/devices/pci0000:00/0000:01:00.4/driver", "../../../bus/pci/drivers/nouveau");
  kernel_.directory("sys/devices/pci0000:00/0000:01:00.4/vfio-dev/vfio0");
  RebindRequest request;
  request.accelerators = {at("0000:01:00.4")};
  const RebindPlan plan = plan_unbind(scan(kernel_).value(), test::gpu_rules(), request, use_, {}, stuck_);
  EXPECT_THAT(plan.refusals, IsEmpty());
  ASSERT_EQ(plan.rebinds.size(), 1U);
  EXPECT_THAT(plan.rebinds[0].steps, IsEmpty());
}

TEST_F(VirtualFunctions, KeepAPhysicalFunctionOnVfioFromGoingBack) {
  kernel_.add_driver({.name = "vfio-pci", .vfio = true});
  kernel_.add_function({.address = "0000:01:00.0", .group = 5, .driver = "vfio-pci", .totalvfs = 16});
  // With the module's enable_sriov.
  kernel_.file("sys/devices/pci0000:00/0000:01:00.0/virtfn0", "");
  kernel_.file("sys/devices/pci0000:00/0000:01:00.0/virtfn1", "");
  RebindRequest request;
  request.accelerators = {at("0000:01:00.0")};
  const RebindPlan plan = plan_unbind(scan(kernel_).value(), test::gpu_rules(), request, use_, {}, stuck_);
  ASSERT_EQ(plan.refusals.size(), 1U);
  EXPECT_THAT(plan.refusals[0].reasons, ElementsAre("0000:01:00.0 has 2 virtual functions enabled"));
}

TEST_F(RebindPlanTest, CallsNoGpuRestoredWhoseRecordCannotBeRead) {
  kernel_.add_driver({.name = "vfio-pci", .vfio = true});
  kernel_.add_function({.address = "0000:01:00.0", .group = 5, .driver = "vfio-pci"});
  kernel_.add_function({.address = "0000:02:00.0", .group = 6});
  kernel_.add_function({.address = "0000:03:00.0", .group = 7, .driver = "nouveau"});
  for (const std::uint32_t group : {5U, 6U, 7U})
    journal_.unreadable.emplace(group, Error{.code = Errc::failed, .message = "it is torn"});
  RebindRequest request;
  request.accelerators = {at("0000:01:00.0"), at("0000:02:00.0"), at("0000:03:00.0")};
  request.recorded_only = true;
  const RebindPlan plan =
      plan_unbind(scan(kernel_).value(), test::gpu_rules(), request, use_, journal_, stuck_);
  ASSERT_EQ(plan.refusals.size(), 2U);
  EXPECT_THAT(plan.refusals[0].reasons, ElementsAre("it is torn"));
  EXPECT_THAT(plan.refusals[1].devices, ElementsAre(at("0000:02:00.0")));
  ASSERT_EQ(plan.rebinds.size(), 1U);
  EXPECT_THAT(plan.rebinds[0].devices, ElementsAre(at("0000:03:00.0"))) << "it is on a driver of the host";
}

TEST_F(RebindPlanTest, RefusesWhatIsInNoGroupStuckUnreadableOrUntouchable) {
  kernel_.add_function({.address = "0000:01:00.0", .driver = "nouveau"});
  kernel_.add_function({.address = "0000:02:00.0", .group = 2, .driver = "nouveau"});
  kernel_.add_function({.address = "0000:03:00.0", .group = 3, .driver = "nouveau"});
  kernel_.add_function({.address = "0000:04:00.0", .group = 4, .driver = "nouveau"});
  kernel_.file("sys/devices/pci0000:00/0000:03:00.0/config", "short");
  stuck_ = {"0000:02:00.0"};
  untouchable_[at("0000:04:00.0")] = "carries 2 vGPUs";
  const RebindPlan plan = bind({"0000:01:00.0", "0000:02:00.0", "0000:03:00.0", "0000:04:00.0"});
  EXPECT_THAT(plan.rebinds, IsEmpty());
  std::vector<std::string> reasons;
  reasons.reserve(plan.refusals.size());
  for (const Refusal& refusal : plan.refusals) reasons.push_back(refusal.reasons.at(0));
  EXPECT_THAT(reasons, ElementsAre("0000:01:00.0 is in no IOMMU group",
                                   "an earlier write to 0000:02:00.0 has not returned from the kernel",
                                   HasSubstr("0000:03:00.0 cannot be read"), "0000:04:00.0 carries 2 vGPUs"));
}

// The kernel sets a function's driver before the driver's probe returns.
TEST_F(RebindPlanTest, RefusesAFunctionWhoseBindHangsThoughItHasTheDriver) {
  kernel_.add_driver({.name = "vfio-pci", .vfio = true});
  kernel_.add_function({.address = "0000:02:00.0", .group = 2, .driver = "vfio-pci"});
  EXPECT_THAT(bind({"0000:02:00.0"}).refusals, IsEmpty());
  stuck_ = {"0000:02:00.0"};
  const RebindPlan plan = bind({"0000:02:00.0"});
  EXPECT_THAT(plan.rebinds, IsEmpty());
  ASSERT_THAT(plan.refusals, testing::SizeIs(1));
  EXPECT_THAT(plan.refusals[0].reasons,
              ElementsAre("an earlier write to 0000:02:00.0 has not returned from the kernel"));
}

// No VM can use it, whatever driver it is on; so neither plan says that all is well.
TEST_F(RebindPlanTest, RefusesAGpuThatIsOffTheBusWhereverItIs) {
  kernel_.add_driver({.name = "vfio-pci", .vfio = true});
  kernel_.add_function({.address = "0000:03:00.0", .group = 3, .driver = "vfio-pci"});
  kernel_.add_function({.address = "0000:04:00.0", .group = 4, .driver = "nouveau"});
  for (const char* gpu : {"0000:03:00.0", "0000:04:00.0"})
    kernel_.file("sys/devices/pci0000:00/" + std::string(gpu) + "/config", std::string(64, '\xff'));
  const auto off_the_bus = [](const RebindPlan& plan) {
    return plan.rebinds.empty() && plan.refusals.size() == 2 &&
           plan.refusals[0].reasons.at(0).find("off the bus") != std::string::npos &&
           plan.refusals[1].reasons.at(0).find("off the bus") != std::string::npos;
  };
  EXPECT_TRUE(off_the_bus(bind({"0000:03:00.0", "0000:04:00.0"})));
  RebindRequest request;
  request.accelerators = {at("0000:03:00.0"), at("0000:04:00.0")};
  EXPECT_TRUE(
      off_the_bus(plan_unbind(scan(kernel_).value(), test::gpu_rules(), request, use_, journal_, stuck_)));
}

// The kernel binds no other driver than the one that an override names.
TEST_F(RebindPlanTest, RestoresAnOverrideOfAnotherDriverAfterTheDriverIsBound) {
  kernel_.add_driver({.name = "vfio-pci", .vfio = true});
  kernel_.add_function(
      {.address = "0000:65:00.0", .group = 41, .driver = "nouveau", .driver_override = "vfio-pci"});
  EXPECT_THAT(
      bind({"0000:65:00.0"}).rebinds.at(0).notes,
      ElementsAre(HasSubstr("driver_override of 0000:65:00.0 names vfio-pci, while nouveau is bound")));

  kernel_.add_function(
      {.address = "0000:66:00.0", .group = 42, .driver = "vfio-pci", .driver_override = "vfio-pci"});
  journal_.members[at("0000:66:00.0")] = {
      .ids = "10de:2684", .driver = "nouveau", .driver_override = "vfio-pci", .role = "accelerator"};
  RebindRequest request;
  request.accelerators = {at("0000:66:00.0")};
  Inventory inventory = scan(kernel_).value();
  read_overrides(kernel_, kernel_, request.accelerators, inventory);
  const RebindPlan back = plan_unbind(inventory, test::gpu_rules(), request, use_, journal_, stuck_);
  EXPECT_THAT(texts(back.rebinds.at(0).steps),
              ElementsAre("set driver_override of 0000:66:00.0 to nouveau",  //
                          "unbind 0000:66:00.0 from vfio-pci",               //
                          "bind 0000:66:00.0 to nouveau",                    //
                          "set driver_override of 0000:66:00.0 to vfio-pci"));
}

TEST_F(RebindPlanTest, RefusesAGroupWhoseForeignMemberCannotBeRead) {
  test::add_four_function_card(kernel_);
  kernel_.add_function({.address = "0000:66:00.0", .ids = "144d:a80a", .class_code = 0x010802, .group = 41});
  EXPECT_EQ(bind({"0000:65:00.0"}).rebinds.size(), 1U);
  kernel_.file("sys/devices/pci0000:00/0000:66:00.0/driver", "no link");
  const RebindPlan plan = bind({"0000:65:00.0"});
  EXPECT_THAT(plan.rebinds, IsEmpty());
  ASSERT_EQ(plan.refusals.size(), 1U);
  EXPECT_THAT(plan.refusals[0].reasons,
              ElementsAre(HasSubstr("0000:66:00.0 shares the group and cannot be read: ")));
}

TEST_F(RebindPlanTest, SaysWhatTheKernelWouldStillObjectTo) {
  test::add_four_function_card(kernel_);
  kernel_.add_function(test::kinds::kDisk, "0000:66:00.0", 41, "nvme");
  RebindPlan plan = bind({"0000:65:00.0"});
  EXPECT_THAT(plan.refusals.at(0).blockers, testing::Optional(ElementsAre(at("0000:66:00.0"))));
  untouchable_[at("0000:65:00.0")] = "carries 2 vGPUs";
  kernel_.remove_function("0000:66:00.0");
  kernel_.add_function({.address = "0000:66:00.0", .ids = "144d:a80a", .class_code = 0x010802, .group = 41});
  plan = bind({"0000:65:00.0"});
  EXPECT_THAT(plan.refusals.at(0).blockers, testing::Optional(IsEmpty()));
}

TEST_F(RebindPlanTest, GivesEachMemberTheDriverOfItsOwnIds) {
  test::add_four_function_card(kernel_);
  kernel_.add_driver({.name = "gpu_variant", .vfio = true});
  const RebindRequest request{.accelerators = {at("0000:65:00.0")}, .with = {}, .untouchable = {}};
  const auto table = VfioDriverTable::parse("alias vfio_pci:v000010DEd00002684sv*sd*bc*sc*i* gpu_variant\n");
  const RebindPlan plan = plan_bind(scan(kernel_).value(), test::gpu_rules(), request, use_, table, {}, {});
  std::map<std::string, std::string> drivers;
  for (const Member& member : plan.rebinds.at(0).members)
    drivers[member.address.text()] = member.driver_after;
  EXPECT_EQ(drivers["0000:65:00.0"], "gpu_variant");
  EXPECT_EQ(drivers["0000:65:00.1"], "vfio-pci");
}

TEST_F(RebindPlanTest, KnowsTheKernelsOwnRuleOfViability) {
  test::add_four_function_card(kernel_);
  EXPECT_THAT(viability_blockers(scan(kernel_).value(), 41),
              ElementsAre(at("0000:65:00.0"), at("0000:65:00.1"), at("0000:65:00.2")));
}

}  // namespace
}  // namespace ferry::vfio
