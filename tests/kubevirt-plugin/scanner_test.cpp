// SPDX-License-Identifier: Apache-2.0
#include "kubevirt-plugin/discovery/scanner.h"

#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "kubevirt-plugin/discovery/sysfs_check.h"
#include "tests/kubevirt-plugin/scanned_host.h"
#include "tests/support/must.h"

namespace ferry::plugin {
namespace {

using plugin_test::ScannerTest;
using test::must;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST_F(ScannerTest, AdvertisesAGpuOnAVfioDriverWithItsGroupsNode) {
  add_gpu("0000:17:00.0", 42, "vfio-pci", 1, "10de:2330");
  const auto offer = scan();
  ASSERT_THAT(resource_names(offer), ElementsAre("nvidia.com/GH100_H100_SXM5_80GB"));
  EXPECT_EQ(offer.resources[0].env_prefix, EnvPrefix::pci_resource);
  const ScannedDevice expected = {.id = "0000:17:00.0",
                                  .kind = DeviceKind::pci_function,
                                  .model = "10de:2330",
                                  .driver = "vfio-pci",
                                  .iommu_group = 42,
                                  .numa_node = 1,
                                  .nodes = {"/dev/vfio/vfio", "/dev/vfio/42"},
                                  .problem = {},
                                  .bus_path = {"pci0000:00"}};
  EXPECT_THAT(offer.resources[0].devices, ElementsAre(expected));
  EXPECT_THAT(offer.warnings, IsEmpty());
  EXPECT_THAT(offer.not_advertised, IsEmpty());
}

TEST_F(ScannerTest, LeavesTheHostsOwnGpusAlone) {
  add_gpu("0000:01:00.0", 15, "nouveau");
  add_gpu("0000:02:00.0", 16, "");
  const auto offer = scan();
  EXPECT_THAT(offer.resources, IsEmpty());
  EXPECT_THAT(offer.not_advertised, IsEmpty());
  EXPECT_THAT(offer.left_to_host, ElementsAre(NotAdvertised{"0000:01:00.0", "its driver is nouveau"}));
  EXPECT_THAT(offer.driverless, ElementsAre(NotAdvertised{"0000:02:00.0", "no driver is bound to it"}));
}

TEST_F(ScannerTest, MakesUpNoNumaNode) {
  add_gpu("0000:01:00.0", 15, "vfio-pci", -1);
  EXPECT_EQ(only_device().numa_node, std::nullopt);
  add_gpu("0000:01:00.0", 15, "vfio-pci", 0);
  EXPECT_EQ(only_device().numa_node, 0);
}

TEST_F(ScannerTest, AdvertisesNoGpuOfAGroupThatCannotBeOpened) {
  add_gpu("0000:01:00.0", 15);
  add_audio("0000:01:00.1", 15, "snd_hda_intel");
  const auto offer = scan();
  EXPECT_THAT(offer.resources, IsEmpty());
  EXPECT_THAT(
      offer.not_advertised,
      ElementsAre(NotAdvertised{"0000:01:00.0",
                                "0000:01:00.1 (audio, driver snd_hda_intel) keeps the kernel from giving "
                                "the group to a VM"}));
}

TEST_F(ScannerTest, MindsNeitherDriverlessMembersNorBridges) {
  kernel.add_function({.address = "0000:00:01.0",
                       .ids = "8086:1901",
                       .class_code = 0x060400,
                       .group = 15,
                       .driver = "pcieport",
                       .header_type = 1});
  add_gpu("0000:01:00.0", 15);
  add_audio("0000:01:00.1", 15, "");
  EXPECT_EQ(refusal(only_device()), "");
}

// The kernel minds a bridge's driver as it does any other's, pcieport apart.
TEST_F(ScannerTest, AdvertisesNoGpuBesideABridgeWhoseDriverKeepsTheGroup) {
  kernel.add_driver({.name = "shpchp", .ids = {"class:0604"}});
  kernel.add_function({.address = "0000:00:01.0",
                       .ids = "1b36:000e",
                       .class_code = 0x060400,
                       .group = 15,
                       .driver = "pcieport",
                       .header_type = 1});
  add_gpu("0000:01:00.0", 15);
  const auto device = only_device();
  kernel.link("sys/devices/pci0000:00/0000:00:01.0/driver", "../../../bus/pci/drivers/shpchp");
  const std::string reason =
      "0000:00:01.0 (bridge, driver shpchp) keeps the kernel from giving the group to a VM";
  EXPECT_THAT(scan().not_advertised, ElementsAre(NotAdvertised{"0000:01:00.0", reason}));
  EXPECT_EQ(refusal(device), "0000:00:01.0 (shpchp) shares its IOMMU group 15 and is not on a vfio driver");
}

TEST_F(ScannerTest, AdvertisesAGpuWithAFatalErrorUnhealthyUntilItIsBoundAnew) {
  const std::string counter = "sys/devices/pci0000:00/0000:01:00.0/aer_dev_fatal";
  add_gpu("0000:01:00.0", 15);
  kernel.file(counter, "Undefined 0\nDLP 2\nTOTAL_ERR_FATAL 2\n");
  EXPECT_EQ(only_device().problem, "") << "what was before its time is past";
  kernel.file(counter, "Undefined 0\nDLP 3\nTOTAL_ERR_FATAL 3\n");
  EXPECT_EQ(only_device().problem,
            "0000:01:00.0 had 1 fatal PCIe error since it was advertised "
            "(/sys/bus/pci/devices/0000:01:00.0/aer_dev_fatal)");
  EXPECT_NE(only_device().problem, "");
  ASSERT_TRUE(kernel.write_attribute("sys/bus/pci/drivers/vfio-pci/unbind", "0000:01:00.0"));
  scan();
  kernel.file("sys/devices/pci0000:00/0000:01:00.0/driver_override", "vfio-pci\n");
  ASSERT_TRUE(kernel.write_attribute("sys/bus/pci/drivers/vfio-pci/bind", "0000:01:00.0"));
  EXPECT_EQ(only_device().problem, "");

  // Off its driver and back between two scans, and no event has come: it has the same number as before.
  kernel.file(counter, "Undefined 0\nDLP 4\nTOTAL_ERR_FATAL 4\n");
  EXPECT_NE(only_device().problem, "");
  ASSERT_TRUE(kernel.write_attribute("sys/bus/pci/drivers/vfio-pci/unbind", "0000:01:00.0"));
  ASSERT_TRUE(kernel.write_attribute("sys/bus/pci/drivers/vfio-pci/bind", "0000:01:00.0"));
  EXPECT_TRUE(kernel.exists("sys/devices/pci0000:00/0000:01:00.0/vfio-dev/vfio0"));
  EXPECT_EQ(only_device().problem, "");
  EXPECT_EQ(only_device().problem, "");

  // The error is as new to us as the binding behind it.
  kernel.file(counter, "Undefined 0\nDLP 5\nTOTAL_ERR_FATAL 5\n");
  ASSERT_TRUE(kernel.write_attribute("sys/bus/pci/drivers/vfio-pci/unbind", "0000:01:00.0"));
  ASSERT_TRUE(kernel.write_attribute("sys/bus/pci/drivers/vfio-pci/bind", "0000:01:00.0"));
  EXPECT_EQ(only_device().problem, "");
  kernel.file(counter, "no total in it\n");
  EXPECT_EQ(only_device().problem, "") << "a host that does not count";
}

// A plugin was down meanwhile, or heard nothing of it.
TEST_F(ScannerTest, DistinguishesABindingFromTheOneThatAnotherProcessSaw) {
  const std::string counter = "sys/devices/pci0000:00/0000:01:00.0/aer_dev_fatal";
  add_gpu("0000:01:00.0", 15);
  kernel.file(counter, "TOTAL_ERR_FATAL 0\n");
  scan();
  kernel.file(counter, "TOTAL_ERR_FATAL 2\n");
  const auto found = scan().fatal_errors;
  ASSERT_THAT(found, testing::SizeIs(1));
  EXPECT_EQ(found[0].since, 0U);
  EXPECT_NE(found[0].binding, 0U);

  Scanner next(kernel, rules);
  next.remember(found[0]);
  EXPECT_THAT(must(next.scan()).fatal_errors, ElementsAre(found[0]));
  ASSERT_TRUE(kernel.write_attribute("sys/bus/pci/drivers/vfio-pci/unbind", "0000:01:00.0"));
  kernel.file("sys/devices/pci0000:00/0000:01:00.0/driver_override", "vfio-pci\n");
  ASSERT_TRUE(kernel.write_attribute("sys/bus/pci/drivers/vfio-pci/bind", "0000:01:00.0"));
  Scanner last(kernel, rules);
  last.remember(found[0]);
  EXPECT_THAT(must(last.scan()).fatal_errors, IsEmpty());

  Scanner unsure(kernel, rules);
  unsure.remember({.function = "0000:01:00.0", .since = 0, .binding = 0});
  EXPECT_THAT(must(unsure.scan()).fatal_errors, testing::SizeIs(1)) << "nobody knows of another binding";
}

TEST_F(ScannerTest, KnowsTheBridgesAboveAFunction) {
  add_gpu("0000:01:00.0", 15);
  kernel.link("sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0", "../0000:01:00.0");
  kernel.link("sys/bus/pci/devices/0000:01:00.0", "../../../devices/pci0000:00/0000:00:01.0/0000:01:00.0");
  EXPECT_THAT(only_device().bus_path, ElementsAre("pci0000:00", "0000:00:01.0"));
}

// Memory of a Grace processor that GPUs reach as theirs: to the pod that has all of the GPUs.
TEST_F(ScannerTest, GivesTheMemoryNodeThatAllItsGpusShareWithAllOfThemOnly) {
  add_gpu("0009:01:00.0", 15, "vfio-pci", 1, "10de:2342");
  add_gpu("0019:01:00.0", 16, "vfio-pci", 1, "10de:2342");
  kernel.file("sys/class/egm/egm4/gpu_devices", "0009:01:00.0 0019:01:00.0\n");
  kernel.file("sys/class/egm/egm5/gpu_devices", "\n");
  kernel.file("sys/class/egm/other/gpu_devices", "0009:01:00.0\n");
  kernel.file("sys/class/egm/egm4/dev", "511:4\n");
  kernel.file("sys/class/egm/egm5/dev", "511:5\n");
  const auto devices = scan().resources.at(0).devices;
  EXPECT_THAT(ask_about(devices).shared, ElementsAre("/dev/egm4"));
  EXPECT_THAT(ask_about({devices[0]}).shared, IsEmpty());
  kernel.remove("sys/class/egm/egm4/dev");
  EXPECT_THAT(ask_about(devices).shared, IsEmpty()) << "no container could be made with it";
}

// NVIDIA's plugin for Kata does not either, and the CDI specifications have none.
TEST_F(ScannerTest, GivesKataNoMemoryNode) {
  rules.kubevirt = false;
  rules.kata = true;
  add_gpu("0009:01:00.0", 15, "vfio-pci", 1, "10de:2342");
  kernel.file("sys/class/egm/egm4/gpu_devices", "0009:01:00.0\n");
  kernel.file("sys/class/egm/egm4/dev", "511:4\n");
  EXPECT_THAT(ask_about(scan().resources.at(0).devices).shared, IsEmpty());
}

TEST_F(ScannerTest, FindsTheGroupOfAKubeletId) {
  add_gpu("0000:01:00.0", 15);
  add_gpu("0000:81:00.0", 30, "nvidia");
  add_vgpu("0000:81:00.0", kUuid, "nvidia-558", "NVIDIA A40-8Q", 211);
  const SysfsCheck check(kernel, rules);
  EXPECT_EQ(check.group_of("0000:01:00.0"), 15U);
  EXPECT_EQ(check.group_of("0000:02:00.0"), std::nullopt);
  EXPECT_EQ(check.group_of(kUuid), 211U);
  EXPECT_EQ(check.group_of("30"), 30U) << "Kata's, of a function without a node of its own";
  EXPECT_EQ(check.group_of("7"), std::nullopt);
  kernel.directory("sys/class/misc/iommu");
  kernel.link("sys/class/vfio-dev/vfio30", "../../devices/pci0000:00/0000:01:00.0/vfio-dev/vfio30");
  kernel.link("sys/devices/pci0000:00/0000:01:00.0/vfio-dev/vfio30/device", "../../../0000:01:00.0");
  EXPECT_EQ(check.group_of("30"), 15U) << "Kata's, of one that has it";
  for (const char* const foreign : {"", "place-0000:01:00.0", "GPU-3f0c2f4e-5f0b-4a57-9d0a-2f1f3f5a7c11",
                                    "kvm7", "../15", "7/", "99999999999999999999"})
    EXPECT_EQ(check.group_of(foreign), std::nullopt) << foreign;
  EXPECT_EQ(check.group_numbered("30"), 30U) << "whatever vfio30 is";
  for (const char* const other : {"", "7", "0000:01:00.0", "-30", "99999999999999999999"})
    EXPECT_EQ(check.group_numbered(other), std::nullopt) << other;
}

TEST_F(ScannerTest, AdvertisesCompanionsOnlyWhenAsked) {
  add_gpu("0000:01:00.0", 15);
  add_audio("0000:01:00.1", 15);
  EXPECT_THAT(resource_names(scan()), ElementsAre("nvidia.com/AD102_GEFORCE_RTX_4090"));
  rules.companions = Companions::devices;
  EXPECT_THAT(resource_names(scan()), ElementsAre("nvidia.com/AD102_GEFORCE_RTX_4090",
                                                  "nvidia.com/AD102_HIGH_DEFINITION_AUDIO_CONTROLLER"));
}

// It is of a group of its own, and so goes with no GPU.
TEST_F(ScannerTest, AdvertisesSwitchesToKubeVirtWithTheCompanionsOnly) {
  kernel.add_function({.address = "0000:01:00.0",
                       .ids = "10de:22a3",
                       .class_code = 0x068000,
                       .group = 15,
                       .driver = "vfio-pci"});
  EXPECT_THAT(scan().resources, IsEmpty());
  rules.companions = Companions::places;
  EXPECT_THAT(scan().resources, IsEmpty());
  rules.companions = Companions::devices;
  EXPECT_THAT(resource_names(scan()), ElementsAre("nvidia.com/GH100_H100_NVSWITCH"));
}

TEST_F(ScannerTest, AdvertisesPlacesForTheCompanionsOfItsGpus) {
  rules.companions = Companions::places;
  add_gpu("0000:01:00.0", 15);
  add_audio("0000:01:00.1", 15);
  add_gpu("0000:02:00.0", 16);
  add_audio("0000:02:00.1", 16, "");
  add_audio("0000:03:00.1", 15);  // of the group, and not of the card
  add_gpu("0000:04:00.0", 18, "nouveau");
  add_audio("0000:04:00.1", 18);
  add_gpu("0000:05:00.0", 19);
  add_audio("0000:05:00.1", 20);  // of the card, and not of the group
  const auto offer = scan();
  ASSERT_THAT(resource_names(offer), ElementsAre("nvidia.com/AD102_GEFORCE_RTX_4090",
                                                 "nvidia.com/AD102_HIGH_DEFINITION_AUDIO_CONTROLLER"));
  EXPECT_TRUE(offer.resources[1].places);
  EXPECT_EQ(offer.resources[1].env_prefix, EnvPrefix::pci_resource);
  EXPECT_THAT(offer.resources[1].devices, IsEmpty());
  const auto& gpus = offer.resources[0].devices;
  const Companion expected = {.address = "0000:01:00.1",
                              .model = "10de:22ba",
                              .driver = "vfio-pci",
                              .resource = "nvidia.com/AD102_HIGH_DEFINITION_AUDIO_CONTROLLER",
                              .env_name = "PCI_RESOURCE_NVIDIA_COM_AD102_HIGH_DEFINITION_AUDIO_CONTROLLER"};
  ASSERT_THAT(ids(offer.resources[0]), ElementsAre("0000:01:00.0", "0000:02:00.0", "0000:05:00.0"));
  EXPECT_THAT(gpus[0].companions, ElementsAre(expected));
  EXPECT_THAT(gpus[1].companions, IsEmpty()) << "it has no driver to go to a VM with";
  EXPECT_THAT(gpus[2].companions, IsEmpty());
  rules.companions = Companions::unasked;
  EXPECT_THAT(scan().resources.at(0).devices.at(0).companions, IsEmpty());
}

TEST_F(ScannerTest, NamesPlacesAsFunctionsAndGivesDevicesTheName) {
  rules.companions = Companions::places;
  add_gpu("0000:01:00.0", 15);
  add_audio("0000:01:00.1", 15);
  rules.names.functions = "gpu-{device}";
  EXPECT_THAT(resource_names(scan()), ElementsAre("nvidia.com/gpu-22ba", "nvidia.com/gpu-2684"));
  rules.names.aliases = {{"10de:22ba", "gpu-2684"}};
  auto offer = scan();
  EXPECT_THAT(resource_names(offer), ElementsAre("nvidia.com/gpu-2684"));
  EXPECT_THAT(offer.resources[0].devices.at(0).companions, IsEmpty());
  EXPECT_THAT(offer.not_advertised,
              ElementsAre(NotAdvertised{"0000:01:00.1", "nvidia.com/gpu-2684 is the name of devices"}));
  rules.names.aliases = {{"10de:22ba", "GPU-2684"}};
  offer = scan();
  EXPECT_THAT(resource_names(offer), ElementsAre("nvidia.com/gpu-2684"));
  EXPECT_THAT(offer.not_advertised,
              ElementsAre(NotAdvertised{
                  "0000:01:00.1", "KubeVirt cannot tell nvidia.com/GPU-2684 from nvidia.com/gpu-2684"}));
}

TEST_F(ScannerTest, AdvertisesNoPlaceForACompanionWithAFatalError) {
  rules.companions = Companions::places;
  const std::string counter = "sys/devices/pci0000:00/0000:01:00.1/aer_dev_fatal";
  add_gpu("0000:01:00.0", 15);
  add_audio("0000:01:00.1", 15);
  kernel.file(counter, "TOTAL_ERR_FATAL 2\n");
  EXPECT_EQ(scan().resources.size(), 2U);
  kernel.file(counter, "TOTAL_ERR_FATAL 3\n");
  const auto offer = scan();
  EXPECT_EQ(offer.resources.size(), 1U);
  ASSERT_EQ(offer.not_advertised.size(), 1U);
  EXPECT_EQ(offer.not_advertised[0].id, "0000:01:00.1");
  EXPECT_THAT(offer.not_advertised[0].reason, HasSubstr("1 fatal PCIe error"));
}

TEST_F(ScannerTest, AdvertisesKataNoPlaces) {
  rules.companions = Companions::places;
  rules.kata = true;
  rules.kubevirt = false;
  add_gpu("0000:01:00.0", 15);
  add_audio("0000:01:00.1", 15);
  EXPECT_THAT(resource_names(scan()), ElementsAre("nvidia.com/pgpu"));
  rules.kubevirt = true;
  const auto offer = scan();
  EXPECT_EQ(offer.resources.size(), 3U);
  for (const auto& resource : offer.resources) {
    if (resource.env_prefix != EnvPrefix::none) continue;
    EXPECT_THAT(resource.devices.at(0).companions, IsEmpty()) << resource.name.text();
  }
}

TEST_F(ScannerTest, SeesThatTheCompanionOfAPlaceIsNoLongerWhatItWas) {
  rules.companions = Companions::places;
  add_gpu("0000:01:00.0", 15);
  add_audio("0000:01:00.1", 15);
  const auto gpu = scan().resources.at(0).devices.at(0);
  ASSERT_EQ(gpu.companions.size(), 1U);
  EXPECT_EQ(refusal(gpu), "");
  auto other = gpu;
  other.companions[0].model = "10de:22bb";
  EXPECT_THAT(refusal(other), HasSubstr("its companion 0000:01:00.1: its model is 10de:22ba now"));
  ASSERT_TRUE(kernel.write_attribute("sys/bus/pci/drivers/vfio-pci/unbind", "0000:01:00.1"));
  EXPECT_EQ(refusal(gpu), "its companion 0000:01:00.1: its driver is none now and was vfio-pci");
  kernel.remove_function("0000:01:00.1");
  EXPECT_EQ(refusal(gpu), "its companion 0000:01:00.1: it is not of the GPU's IOMMU group any more");
}

TEST_F(ScannerTest, AdvertisesOnlyTheRulesVendors) {
  kernel.add_function({.address = "0000:03:00.0", .ids = "1002:744c", .group = 20, .driver = "vfio-pci"});
  EXPECT_THAT(scan().resources, IsEmpty());
  rules.accelerators.vendors = {0x1002};
  rules.domain = "amd.com";
  kernel.file("usr/share/misc/pci.ids", "1002  AMD\n\t744c  Navi 31\n");
  EXPECT_THAT(resource_names(scan()), ElementsAre("amd.com/NAVI_31"));
}

TEST_F(ScannerTest, AdvertisesOtherVendorsGpusThatAreOnVfioUnderTheirVendorsDomain) {
  rules.accelerators.of_other_vendors = {vfio::PciClass::vga};
  rules.domains = {{0x8086, "intel.com"}};
  kernel.directory("sys/class/misc/iommu");
  for (const char* device : {"vfio0", "vfio1", "vfio2"})
    kernel.file(std::string("dev/vfio/devices/") + device, "");
  add_gpu("0000:03:00.0", 20, "vfio-pci", -1, "1002:744c");
  kernel.add_function({.address = "0000:03:00.1",
                       .ids = "1002:ab30",
                       .class_code = 0x040300,
                       .group = 20,
                       .driver = "vfio-pci"});
  add_gpu("0000:04:00.0", 21, "vfio-pci", -1, "8086:56c0");
  add_gpu("0000:05:00.0", 22, "nouveau", -1, "1002:744c");
  const ResourceSet unnamed = scan();
  EXPECT_THAT(resource_names(unnamed), ElementsAre("intel.com/56c0"));
  ASSERT_EQ(unnamed.not_advertised.size(), 1U);
  EXPECT_THAT(unnamed.not_advertised[0].reason, HasSubstr("no pci.ids with a name for vendor 1002"));
  EXPECT_THAT(unnamed.left_to_host, IsEmpty()) << "the host's own display is nothing to speak of";

  kernel.file("usr/share/misc/pci.ids",
              "1002  Advanced Micro Devices, Inc. [AMD/ATI]\n\t744c  Navi 31\n8086  Intel Corporation\n"
              "\t56c0  DG2 [Data Center GPU Flex 170]\n");
  Scanner again{kernel, rules};
  const ResourceSet offer = must(again.scan());
  EXPECT_THAT(resource_names(offer),
              ElementsAre("amd.com/NAVI_31", "intel.com/DG2_DATA_CENTER_GPU_FLEX_170"));
  const ScannedDevice& amd = offer.resources.at(0).devices.at(0);
  EXPECT_THAT(amd.nodes, testing::Contains("/dev/vfio/devices/vfio1")) << "its audio's";
  EXPECT_EQ(*nodes_now(amd), amd.nodes);
}

TEST_F(ScannerTest, HandsOutTheFunctionsOwnNodesWhereTheHostHasThem) {
  add_gpu("0000:01:00.0", 15);
  add_audio("0000:01:00.1", 15);
  kernel.add_function({.address = "0000:01:00.2",
                       .ids = "8086:1234",
                       .class_code = 0x020000,
                       .group = 15,
                       .driver = "vfio-pci"});
  kernel.file("dev/vfio/devices/vfio0", "");
  kernel.file("dev/vfio/devices/vfio1", "");
  EXPECT_THAT(only_device().nodes, ElementsAre("/dev/vfio/vfio", "/dev/vfio/15"));
  kernel.directory("sys/class/misc/iommu");
  const std::vector<std::string> all = {"/dev/vfio/devices/vfio0", "/dev/vfio/devices/vfio1",
                                        "/dev/vfio/vfio", "/dev/vfio/15", "/dev/iommu"};
  EXPECT_EQ(only_device().nodes, all);
  EXPECT_EQ(*nodes_now(only_device()), all);
  kernel.remove("dev/vfio/devices/vfio1");
  EXPECT_THAT(only_device().nodes, ElementsAre("/dev/vfio/vfio", "/dev/vfio/15"));
}

TEST_F(ScannerTest, DoesWithoutTheGroupsNodeWhereOnlyTheFunctionsOwnIsThere) {
  add_gpu("0000:01:00.0", 15);
  kernel.file("dev/vfio/devices/vfio0", "");
  kernel.directory("sys/class/misc/iommu");
  kernel.remove("dev/vfio/15");
  EXPECT_THAT(only_device().nodes, ElementsAre("/dev/vfio/devices/vfio0", "/dev/iommu"));
}

TEST_F(ScannerTest, ListsADeviceWithoutItsNodeUnhealthy) {
  add_gpu("0000:01:00.0", 15);
  kernel.remove("dev/vfio/15");
  EXPECT_EQ(only_device().problem, "/dev/vfio/vfio and /dev/vfio/15 are not both there");
  kernel.directory("dev/vfio/15");
  EXPECT_EQ(only_device().problem, "/dev/vfio/vfio and /dev/vfio/15 are not both there");
}

TEST_F(ScannerTest, AdvertisesNoAddressThatKubeVirtCannotRead) {
  add_gpu("10000:01:00.0", 15);
  EXPECT_THAT(scan().not_advertised,
              ElementsAre(testing::Field(&NotAdvertised::reason, HasSubstr("four domain digits"))));
}

TEST_F(ScannerTest, AdvertisesTheOthersWhenOneFunctionCannotBeRead) {
  add_gpu("0000:01:00.0", 15);
  add_gpu("0000:02:00.0", 16);
  kernel.file("sys/devices/pci0000:00/0000:02:00.0/config", "");
  const auto offer = scan();
  EXPECT_THAT(ids(offer.resources.at(0)), ElementsAre("0000:01:00.0"));
  EXPECT_THAT(offer.not_advertised, ElementsAre(testing::Field(&NotAdvertised::id, "0000:02:00.0")));
}

// Who had it listed keeps it, Unhealthy, and looks again soon.
TEST_F(ScannerTest, MissesAFunctionThatItHasNoDescriptorsFor) {
  rules.kata = true;
  rules.kubevirt = false;  // who reads no vGPUs
  add_gpu("0000:01:00.0", 15);
  EXPECT_FALSE(scan().unsettled);
  const auto offer = with_one_descriptor([&] { return scan(); });
  EXPECT_THAT(offer.resources, IsEmpty());
  EXPECT_THAT(offer.driverless, ElementsAre(testing::Field(&NotAdvertised::id, "0000:01:00.0")));
  EXPECT_THAT(offer.not_advertised, IsEmpty()) << "it may be any";
  EXPECT_TRUE(offer.unsettled);
}

}  // namespace
}  // namespace ferry::plugin
