// SPDX-License-Identifier: Apache-2.0
#include "kubevirt-plugin/discovery/scanner.h"

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <sys/resource.h>
#include <unistd.h>
#include <vector>

#include <gmock/gmock.h>

#include "hostfs/stuck_writes.h"
#include "kubevirt-plugin/discovery/sysfs_check.h"
#include "tests/kubevirt-plugin/nvidia_rules.h"
#include "tests/support/fake_vendor_vfio.h"
#include "tests/support/must.h"

namespace ferry::plugin {
namespace {

using test::must;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* kUuid = "3f0c2f4e-5f0b-4a57-9d0a-2f1f3f5a7c11";
constexpr const char* kOtherUuid = "7be1a8a0-54c2-4a25-8f08-0c1f6f2f9d22";

class ScannerTest : public testing::Test {
 protected:
  ScannerTest() {
    kernel.add_driver({.name = "vfio-pci", .vfio = true});
    kernel.add_driver({.name = "nouveau", .ids = {"class:0300"}});
    kernel.add_driver({.name = "snd_hda_intel", .ids = {"class:0403"}});
    kernel.add_driver({.name = "pcieport", .ids = {"class:0604"}});
    kernel.add_driver({.name = "nvidia"});
    kernel.file("dev/vfio/vfio", "");
  }

  void add_gpu(const std::string& address, unsigned group, const std::string& driver = "vfio-pci",
               int numa = -1, const std::string& ids = "10de:2684") {
    kernel.add_function(
        {.address = address, .ids = ids, .group = group, .driver = driver, .numa_node = numa});
  }
  void add_audio(const std::string& address, unsigned group, const std::string& driver = "vfio-pci") {
    kernel.add_function(
        {.address = address, .ids = "10de:22ba", .class_code = 0x040300, .group = group, .driver = driver});
  }
  void add_vgpu(const std::string& parent, const std::string& uuid, const std::string& type,
                const std::string& name, unsigned group) {
    const std::string home = "sys/devices/pci0000:00/" + parent + "/";
    kernel.link("sys/class/mdev_bus/" + parent, "../../devices/pci0000:00/" + parent);
    kernel.file(home + "mdev_supported_types/" + type + "/name", name + "\n");
    kernel.file(home + "mdev_supported_types/" + type + "/available_instances", "3\n");
    kernel.link(home + uuid + "/mdev_type", "../mdev_supported_types/" + type);
    kernel.link(home + uuid + "/iommu_group", "../../../../kernel/iommu_groups/" + std::to_string(group));
    kernel.link(home + uuid + "/driver", "../../../../bus/mdev/drivers/vfio_mdev");
    kernel.link("sys/bus/mdev/devices/" + uuid, "../../../devices/pci0000:00/" + parent + "/" + uuid);
    kernel.file("dev/vfio/" + std::to_string(group), "");
  }

  ResourceSet scan() {
    auto offer = scanner.scan();
    EXPECT_TRUE(offer) << offer.error().message;
    return offer.value_or(ResourceSet{});
  }
  AdvertisedDevice only_device() {
    const auto offer = scan();
    EXPECT_EQ(offer.resources.size(), 1U);
    return offer.resources.at(0).devices.at(0);
  }
  HostAnswer::Container ask_about(const std::vector<AdvertisedDevice>& devices) const {
    const SysfsCheck check(kernel, rules, std::chrono::seconds(20));
    HandOut what{.groups = {}, .containers = {devices}};
    for (const auto& device : devices) what.groups.insert(device.iommu_group);
    HostAnswer answer;
    check.ask(what, [&](HostAnswer said) { answer = std::move(said); });
    for (const auto& [group, state] : answer.groups) EXPECT_EQ(state, GroupState::closed) << group;
    return answer.containers.at(0);
  }
  Result<std::vector<std::string>> nodes_now(const AdvertisedDevice& device) const {
    return std::move(ask_about({device}).nodes.at(0));
  }
  /// What it gives when one more file may be open, and no second.
  template <typename Work>
  static auto with_one_descriptor(Work work) {
    rlimit limit{};
    EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
    const int free = ::dup(STDERR_FILENO);  // the lowest that is
    const int next = ::dup(STDERR_FILENO);
    const rlimit few{.rlim_cur = static_cast<rlim_t>(next), .rlim_max = limit.rlim_max};
    for (const int fd : {free, next}) ::close(fd);
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
    auto result = work();
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
    return result;
  }
  std::string refusal(const AdvertisedDevice& device) const {
    const auto now = nodes_now(device);
    return now ? std::string() : now.error().message;
  }
  static std::vector<std::string> resource_names(const ResourceSet& offer) {
    std::vector<std::string> texts;
    texts.reserve(offer.resources.size());
    for (const auto& resource : offer.resources) texts.push_back(resource.name.text());
    return texts;
  }
  static std::vector<std::string> ids(const Resource& resource) {
    std::vector<std::string> texts;
    texts.reserve(resource.devices.size());
    for (const auto& device : resource.devices) texts.push_back(device.id);
    return texts;
  }

  test::FakeKernel kernel;
  ResourceRules rules = test::nvidia_rules();
  Scanner scanner{kernel, rules};
};

TEST_F(ScannerTest, OffersAGpuOnAVfioDriverWithItsGroupsNode) {
  add_gpu("0000:17:00.0", 42, "vfio-pci", 1, "10de:2330");
  const auto offer = scan();
  ASSERT_THAT(resource_names(offer), ElementsAre("nvidia.com/GH100_H100_SXM5_80GB"));
  EXPECT_EQ(offer.resources[0].env_prefix, EnvPrefix::pci_resource);
  const AdvertisedDevice expected = {.id = "0000:17:00.0",
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

TEST_F(ScannerTest, OffersNoGpuOfAGroupThatCannotBeOpened) {
  add_gpu("0000:01:00.0", 15);
  add_audio("0000:01:00.1", 15, "snd_hda_intel");
  const auto offer = scan();
  EXPECT_THAT(offer.resources, IsEmpty());
  EXPECT_THAT(
      offer.not_advertised,
      ElementsAre(NotAdvertised{"0000:01:00.0",
                                "0000:01:00.1 (snd_hda_intel) shares its IOMMU group 15 and is not on a "
                                "vfio driver"}));
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
TEST_F(ScannerTest, OffersNoGpuBesideABridgeWhoseDriverKeepsTheGroup) {
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
  const std::string reason = "0000:00:01.0 (shpchp) shares its IOMMU group 15 and is not on a vfio driver";
  EXPECT_THAT(scan().not_advertised, ElementsAre(NotAdvertised{"0000:01:00.0", reason}));
  EXPECT_EQ(refusal(device), reason);
}

TEST_F(ScannerTest, OffersAGpuWithAFatalErrorUnhealthyUntilItIsBoundAnew) {
  const std::string counter = "sys/devices/pci0000:00/0000:01:00.0/aer_dev_fatal";
  add_gpu("0000:01:00.0", 15);
  kernel.file(counter, "Undefined 0\nDLP 2\nTOTAL_ERR_FATAL 2\n");
  EXPECT_EQ(only_device().problem, "") << "what was before its time is past";
  kernel.file(counter, "Undefined 0\nDLP 3\nTOTAL_ERR_FATAL 3\n");
  EXPECT_EQ(only_device().problem,
            "1 fatal PCIe error since it was advertised "
            "(/sys/bus/pci/devices/0000:01:00.0/aer_dev_fatal)");
  EXPECT_NE(only_device().problem, "");
  ASSERT_TRUE(kernel.write_attribute("sys/bus/pci/drivers/vfio-pci/unbind", "0000:01:00.0"));
  scan();
  kernel.file("sys/devices/pci0000:00/0000:01:00.0/driver_override", "vfio-pci\n");
  ASSERT_TRUE(kernel.write_attribute("sys/bus/pci/drivers/vfio-pci/bind", "0000:01:00.0"));
  EXPECT_EQ(only_device().problem, "");

  // Off its driver and back between two scans, and nobody has told: it has the same number as before.
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
TEST_F(ScannerTest, TellsABindingFromTheOneThatAnotherProcessSaw) {
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

TEST_F(ScannerTest, OffersCompanionsOnlyWhenAsked) {
  add_gpu("0000:01:00.0", 15);
  add_audio("0000:01:00.1", 15);
  EXPECT_THAT(resource_names(scan()), ElementsAre("nvidia.com/AD102_GEFORCE_RTX_4090"));
  rules.companions = Companions::devices;
  EXPECT_THAT(resource_names(scan()), ElementsAre("nvidia.com/AD102_GEFORCE_RTX_4090",
                                                  "nvidia.com/AD102_HIGH_DEFINITION_AUDIO_CONTROLLER"));
}

// It is of a group of its own, and so goes with no GPU.
TEST_F(ScannerTest, OffersSwitchesToKubeVirtWithTheCompanionsOnly) {
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

TEST_F(ScannerTest, OffersPlacesForTheCompanionsOfItsGpus) {
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

TEST_F(ScannerTest, OffersNoPlaceForACompanionWithAFatalError) {
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

TEST_F(ScannerTest, OffersKataNoPlaces) {
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

TEST_F(ScannerTest, OffersOnlyTheRulesVendors) {
  kernel.add_function({.address = "0000:03:00.0", .ids = "1002:744c", .group = 20, .driver = "vfio-pci"});
  EXPECT_THAT(scan().resources, IsEmpty());
  rules.accelerators.vendors = {0x1002};
  rules.domain = "amd.com";
  kernel.file("usr/share/misc/pci.ids", "1002  AMD\n\t744c  Navi 31\n");
  EXPECT_THAT(resource_names(scan()), ElementsAre("amd.com/NAVI_31"));
}

TEST_F(ScannerTest, OffersOtherVendorsGpusThatAreOnVfioUnderTheirVendorsDomain) {
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
  const AdvertisedDevice& amd = offer.resources.at(0).devices.at(0);
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
}

TEST_F(ScannerTest, MergesModelsOfOneName) {
  add_gpu("0000:02:00.0", 16, "vfio-pci", -1, "10de:20b1");
  add_gpu("0000:01:00.0", 15, "vfio-pci", -1, "10de:20f1");
  const auto offer = scan();
  ASSERT_THAT(resource_names(offer), ElementsAre("nvidia.com/GA100_A100_PCIE_40GB"));
  EXPECT_THAT(ids(offer.resources[0]), ElementsAre("0000:01:00.0", "0000:02:00.0"));
}

TEST_F(ScannerTest, FallsBackToTheHexIdWhereTheKubeletWouldRefuseTheName) {
  add_gpu("0000:01:00.0", 15, "vfio-pci", -1, "10de:24fa");
  add_gpu("0000:02:00.0", 16, "vfio-pci", -1, "10de:fffe");
  add_gpu("0000:03:00.0", 17, "vfio-pci", -1, "10de:fffe");
  const auto offer = scan();
  EXPECT_THAT(resource_names(offer), ElementsAre("nvidia.com/24fa", "nvidia.com/fffe"));
  EXPECT_THAT(offer.warnings, ElementsAre(AllOf(HasSubstr("GA104_RTX_A4500_EMBEDDED_GPU_"),
                                                HasSubstr("advertised as nvidia.com/24fa")),
                                          "10de:fffe has no name; it is advertised as nvidia.com/fffe"));
}

TEST_F(ScannerTest, FillsATemplateWithTheHexIdOfAModelWithoutAName) {
  rules.names.functions = "gpu-{name}";
  add_gpu("0000:01:00.0", 15, "vfio-pci", -1, "10de:fffe");
  add_gpu("0000:02:00.0", 16, "vfio-pci", -1, "10de:fffd");
  EXPECT_THAT(resource_names(scan()), ElementsAre("nvidia.com/gpu-fffd", "nvidia.com/gpu-fffe"));
}

// Kata's name for a model is then as KubeVirt's.
TEST_F(ScannerTest, LeavesKubeVirtItsNameWhereKataHasNoAlias) {
  rules.kata = true;
  rules.kata_names.gpu_alias = "";
  add_gpu("0000:01:00.0", 15, "vfio-pci", -1, "10de:2330");
  const auto offer = scan();
  ASSERT_THAT(resource_names(offer), ElementsAre("nvidia.com/GH100_H100_SXM5_80GB"));
  EXPECT_EQ(offer.resources[0].env_prefix, EnvPrefix::pci_resource);
  ASSERT_EQ(offer.not_advertised.size(), 1U);
  EXPECT_THAT(offer.not_advertised[0].reason, HasSubstr("the name of devices of another kind"));
}

TEST_F(ScannerTest, OffersAVgpuByItsType) {
  add_gpu("0000:81:00.0", 30, "nvidia", 1, "10de:2235");
  add_vgpu("0000:81:00.0", kUuid, "nvidia-558", "NVIDIA A40-8Q", 211);
  const auto offer = scan();
  ASSERT_THAT(resource_names(offer), ElementsAre("nvidia.com/NVIDIA_A40-8Q"));
  EXPECT_EQ(offer.resources[0].env_prefix, EnvPrefix::mdev_pci_resource);
  const AdvertisedDevice expected = {.id = kUuid,
                                     .kind = DeviceKind::mediated_device,
                                     .model = "NVIDIA A40-8Q",
                                     .driver = "vfio_mdev",
                                     .iommu_group = 211,
                                     .numa_node = 1,
                                     .nodes = {"/dev/vfio/vfio", "/dev/vfio/211"},
                                     .problem = {},
                                     .vgpu_type = "nvidia-558",
                                     .gpu = "0000:81:00.0",
                                     .bus_path = {"pci0000:00"}};
  EXPECT_THAT(offer.resources[0].devices, ElementsAre(expected));
  EXPECT_THAT(*nodes_now(expected), ElementsAre("/dev/vfio/vfio", "/dev/vfio/211"));
}

// A GPU that is off the bus, say. Its vGPUs are there, and may be in VMs.
TEST_F(ScannerTest, KeepsAVgpuUnderItsNameWhileItsDriverDoesNotTell) {
  add_gpu("0000:81:00.0", 30, "nvidia");
  add_vgpu("0000:81:00.0", kUuid, "nvidia-558", "NVIDIA A40-8Q", 211);
  const auto before = only_device();
  const std::string gpu = "sys/devices/pci0000:00/0000:81:00.0/";
  const std::string of_vgpu = gpu + kUuid;
  const std::map<std::string, std::function<void()>> unread_and_back = {
      {gpu + "mdev_supported_types/nvidia-558/name",
       [&] { kernel.file(gpu + "mdev_supported_types/nvidia-558/name", "NVIDIA A40-8Q\n"); }},
      {gpu + "mdev_supported_types/nvidia-558/available_instances",
       [&] { kernel.file(gpu + "mdev_supported_types/nvidia-558/available_instances", "3\n"); }},
      {of_vgpu + "/iommu_group",
       [&] { kernel.link(of_vgpu + "/iommu_group", "../../../../kernel/iommu_groups/211"); }}};
  for (const auto& [file, put_back] : unread_and_back) {
    kernel.remove(file);
    kernel.directory(file);  // whatever the reason is: EISDIR and EINVAL here, EIO there
    const ResourceSet offer = scan();
    ASSERT_THAT(resource_names(offer), ElementsAre("nvidia.com/NVIDIA_A40-8Q")) << file;
    ASSERT_THAT(ids(offer.resources[0]), ElementsAre(kUuid)) << file;
    EXPECT_THAT(offer.resources[0].devices[0].problem,
                AllOf(HasSubstr("its GPU: "), HasSubstr(file.substr(file.rfind('/')))));
    EXPECT_THAT(offer.vanished, IsEmpty()) << "it has not gone";
    EXPECT_TRUE(offer.unsettled);
    kernel.remove(file);
    put_back();
    EXPECT_EQ(only_device(), before) << file;
  }
}

TEST_F(ScannerTest, BlamesNoVgpuForWhatFailsOfAnother) {
  add_gpu("0000:81:00.0", 30, "nvidia");
  add_vgpu("0000:81:00.0", kUuid, "nvidia-558", "NVIDIA A40-8Q", 211);
  add_vgpu("0000:81:00.0", kOtherUuid, "nvidia-559", "NVIDIA A40-16Q", 212);
  scan();
  const std::string name = "sys/devices/pci0000:00/0000:81:00.0/mdev_supported_types/nvidia-559/name";
  kernel.remove(name);
  kernel.directory(name);
  const ResourceSet offer = scan();
  ASSERT_THAT(resource_names(offer), ElementsAre("nvidia.com/NVIDIA_A40-16Q", "nvidia.com/NVIDIA_A40-8Q"));
  EXPECT_NE(offer.resources[0].devices.at(0).problem, "");
  EXPECT_EQ(offer.resources[1].devices.at(0).problem, "");
}

TEST_F(ScannerTest, KeepsAVirtualFunctionsVgpuWhileItsDriverDoesNotTell) {
  kernel.add_function({.address = "0000:17:00.0", .group = 20, .driver = "nvidia", .totalvfs = 3});
  kernel.enable_vfs("0000:17:00.0", 3);
  for (const char* node : {"dev/vfio/100", "dev/vfio/101", "dev/vfio/102"}) kernel.file(node, "");
  test::FakeVendorVfio vendor(kernel);
  vendor.add_gpu("0000:17:00.0");
  vendor.set("0000:17:00.4", "1153");
  vendor.set("0000:17:00.5", "1153");
  ASSERT_THAT(ids(scan().resources.at(0)), ElementsAre("0000:17:00.4", "0000:17:00.5"));
  const auto break_it = [&](const std::string& attribute) {
    const std::string file = "sys/devices/pci0000:00/" + attribute;
    kernel.remove(file);
    kernel.directory(file);
  };
  break_it("0000:17:00.4/nvidia/current_vgpu_type");
  const ResourceSet offer = scan();
  ASSERT_THAT(ids(offer.resources.at(0)), ElementsAre("0000:17:00.4", "0000:17:00.5"));
  EXPECT_THAT(offer.resources[0].devices[0].problem, HasSubstr("current_vgpu_type"));
  EXPECT_EQ(offer.resources[0].devices[1].problem, "");
  // One that is gone does not come back by what else fails there.
  vendor.set("0000:17:00.5", "0");
  break_it("0000:17:00.5/nvidia/creatable_vgpu_types");
  EXPECT_THAT(ids(scan().resources.at(0)), ElementsAre("0000:17:00.4"));
}

TEST_F(ScannerTest, OffersNoVgpuWhoseNameCouldNeverBeRead) {
  add_gpu("0000:81:00.0", 30, "nvidia");
  add_vgpu("0000:81:00.0", kUuid, "nvidia-558", "NVIDIA A40-8Q", 211);
  const std::string name = "sys/devices/pci0000:00/0000:81:00.0/mdev_supported_types/nvidia-558/name";
  kernel.remove(name);
  kernel.directory(name);
  const ResourceSet offer = scan();
  EXPECT_THAT(offer.resources, IsEmpty()) << "pods ask for it by a name that it will have";
  ASSERT_THAT(offer.not_advertised, testing::SizeIs(1));
  EXPECT_THAT(offer.not_advertised[0].reason, HasSubstr("nvidia-558/name"));
  kernel.remove(name);
  EXPECT_THAT(resource_names(scan()), ElementsAre("nvidia.com/nvidia-558")) << "a kernel before 6.1";
}

TEST_F(ScannerTest, AVgpuIsNoHealthierThanItsGpu) {
  const std::string gpu = "sys/devices/pci0000:00/0000:81:00.0/";
  add_gpu("0000:81:00.0", 30, "nvidia");
  add_vgpu("0000:81:00.0", kUuid, "nvidia-558", "NVIDIA A40-8Q", 211);
  kernel.file(gpu + "aer_dev_fatal", "TOTAL_ERR_FATAL 2\n");
  EXPECT_EQ(only_device().problem, "") << "what was before its time is past";
  kernel.file(gpu + "aer_dev_fatal", "TOTAL_ERR_FATAL 3\n");
  for (int again = 0; again < 2; ++again)
    EXPECT_EQ(only_device().problem,
              "its GPU had 1 fatal PCIe error since it was advertised "
              "(/sys/bus/pci/devices/0000:81:00.0/aer_dev_fatal)");
  kernel.remove(std::string("sys/bus/mdev/devices/") + kUuid);
  kernel.remove(gpu + kUuid);
  EXPECT_THAT(scan().resources, IsEmpty());
  add_vgpu("0000:81:00.0", kOtherUuid, "nvidia-558", "NVIDIA A40-8Q", 211);
  EXPECT_NE(only_device().problem, "") << "vGPUs made anew mend no GPU";
  ASSERT_TRUE(kernel.write_attribute("sys/bus/pci/drivers/nvidia/unbind", "0000:81:00.0"));
  kernel.file(gpu + "driver_override", "nvidia\n");
  ASSERT_TRUE(kernel.write_attribute("sys/bus/pci/drivers/nvidia/bind", "0000:81:00.0"));
  EXPECT_EQ(only_device().problem, "");
  kernel.remove(gpu + "config");
  EXPECT_THAT(only_device().problem, AllOf(HasSubstr("its GPU: "), HasSubstr("config")));
}

TEST_F(ScannerTest, SaysWhoMayHaveTakenAMediatedDeviceAway) {
  add_gpu("0000:81:00.0", 30, "nvidia");
  add_vgpu("0000:81:00.0", kUuid, "nvidia-558", "NVIDIA A40-8Q", 211);
  EXPECT_THAT(scan().vanished, IsEmpty());
  kernel.remove(std::string("sys/bus/mdev/devices/") + kUuid);
  kernel.remove(std::string("sys/devices/pci0000:00/0000:81:00.0/") + kUuid);
  const auto vanished = scan().vanished;
  ASSERT_EQ(vanished.size(), 1U);
  EXPECT_EQ(vanished[0].id, kUuid);
  EXPECT_THAT(vanished[0].reason, HasSubstr("NVIDIA A40-8Q is gone"));
  EXPECT_THAT(vanished[0].reason, HasSubstr("externalResourceProvider"));
  EXPECT_THAT(scan().vanished, IsEmpty()) << "said once";
}

TEST_F(ScannerTest, SeesAMediatedDeviceOfAGpuWithWholeVirtualFunctions) {
  rules.accelerators.vendors.insert(0x8086);
  kernel.add_driver({.name = "i915"});
  add_gpu("0000:81:00.0", 30, "i915", -1, "8086:56c0");
  kernel.add_function({.address = "0000:81:00.1",
                       .ids = "8086:56c0",
                       .group = 31,
                       .driver = "i915",
                       .physical_function = "0000:81:00.0"});
  add_vgpu("0000:81:00.0", kUuid, "i915-1", "GVTg V5", 211);
  const AdvertisedDevice device = only_device();
  EXPECT_EQ(device.id, kUuid);
  EXPECT_EQ(device.kind, DeviceKind::mediated_device);
  kernel.remove(std::string("sys/bus/mdev/devices/") + kUuid);
  kernel.remove(std::string("sys/devices/pci0000:00/0000:81:00.0/") + kUuid);
  EXPECT_EQ(scan().vanished.size(), 1U);
}

TEST_F(ScannerTest, RefusesVgpuTypesThatKubeVirtCannotTellApart) {
  add_gpu("0000:81:00.0", 30, "nvidia");
  add_vgpu("0000:81:00.0", kUuid, "nvidia-1", "GRID T4.1Q", 211);
  add_vgpu("0000:81:00.0", kOtherUuid, "nvidia-2", "grid T4_1Q", 212);
  const auto offer = scan();
  EXPECT_THAT(resource_names(offer), ElementsAre("nvidia.com/GRID_T4.1Q"));
  EXPECT_THAT(offer.not_advertised,
              ElementsAre(NotAdvertised{kOtherUuid,
                                        "KubeVirt cannot tell nvidia.com/grid_T4_1Q from "
                                        "nvidia.com/GRID_T4.1Q"}));
  EXPECT_THAT(offer.warnings, ElementsAre(HasSubstr("nvidia.com/grid_T4_1Q is not advertised")));
}

TEST_F(ScannerTest, RefusesAVgpuTypeNamedAsAWholeGpuIs) {
  add_gpu("0000:01:00.0", 15, "vfio-pci");
  add_gpu("0000:81:00.0", 30, "nvidia");
  add_vgpu("0000:81:00.0", kUuid, "nvidia-1", "AD102 GEFORCE RTX 4090", 211);
  const auto offer = scan();
  ASSERT_THAT(resource_names(offer), ElementsAre("nvidia.com/AD102_GEFORCE_RTX_4090"));
  EXPECT_THAT(ids(offer.resources[0]), ElementsAre("0000:01:00.0"));
  EXPECT_THAT(offer.not_advertised, ElementsAre(testing::Field(&NotAdvertised::id, kUuid)));
}

TEST_F(ScannerTest, OffersNoVgpuWithAnIllegalName) {
  add_gpu("0000:81:00.0", 30, "nvidia");
  add_vgpu("0000:81:00.0", kUuid, "nvidia-1", "T4 (1Q)", 211);
  const auto offer = scan();
  EXPECT_THAT(offer.resources, IsEmpty());
  EXPECT_THAT(offer.not_advertised, ElementsAre(testing::Field(&NotAdvertised::reason, HasSubstr("'('"))));
}

// Other vendors have no vGPU types: a virtual function that vfio-pci has goes to a VM whole.
TEST_F(ScannerTest, OffersOtherVendorsVirtualFunctionsThatAreOnVfio) {
  rules.accelerators.of_other_vendors = {vfio::PciClass::display_3d, vfio::PciClass::processing_accelerator};
  kernel.file("usr/share/misc/pci.ids",
              "1002  Advanced Micro Devices, Inc. [AMD/ATI]\n\t75a3  MI355X\n\t75b3  MI355X VF\n"
              "8086  Intel Corporation\n\t56c0  DG2 [Data Center GPU Flex 170]\n"
              "1e0f  KIOXIA Corporation\n\t0001  NVMe\n");
  for (const char* driver : {"gim", "xe", "nvme"}) kernel.add_driver({.name = driver});
  const auto add = [&](const std::string& address, const std::string& ids, unsigned code, unsigned group,
                       const std::string& driver, const std::string& physical = {}) {
    kernel.add_function({.address = address,
                         .ids = ids,
                         .class_code = code,
                         .group = group,
                         .driver = driver,
                         .physical_function = physical});
  };
  add("0000:17:00.0", "1002:75a3", 0x120000, 20, "gim");
  add("0000:17:02.0", "1002:75b3", 0x120000, 21, "vfio-pci", "0000:17:00.0");
  add("0000:17:02.1", "1002:75b3", 0x120000, 22, "gim", "0000:17:00.0");
  add("0000:18:00.0", "8086:56c0", 0x038000, 23, "xe");
  add("0000:19:00.0", "8086:56c0", 0x030200, 24, "xe");
  add("0000:19:00.1", "8086:56c0", 0x030200, 25, "vfio-pci", "0000:19:00.0");
  add("0000:1a:00.0", "8086:56c0", 0x030200, 26, "vfio-pci");
  add("0000:1b:00.0", "1e0f:0001", 0x010802, 27, "nvme");
  add("0000:1b:00.1", "1e0f:0001", 0x010802, 28, "vfio-pci", "0000:1b:00.0");
  const ResourceSet offer = scan();
  EXPECT_THAT(resource_names(offer),
              ElementsAre("amd.com/MI355X_VF", "intel.com/DG2_DATA_CENTER_GPU_FLEX_170",
                          "intel.com/DG2_DATA_CENTER_GPU_FLEX_170_VF"));
  EXPECT_THAT(offer.not_advertised, IsEmpty());
  EXPECT_THAT(offer.left_to_host, IsEmpty());
  const AdvertisedDevice& amd = offer.resources.at(0).devices.at(0);
  EXPECT_EQ(amd.id, "0000:17:02.0");
  EXPECT_EQ(amd.kind, DeviceKind::pci_function);
  EXPECT_THAT(amd.nodes, ElementsAre("/dev/vfio/vfio", "/dev/vfio/21"));
  EXPECT_EQ(*nodes_now(amd), amd.nodes);
  EXPECT_EQ(offer.resources.at(2).devices.at(0).id, "0000:19:00.1");
  rules.accelerators.named_vendors = {0x1002, 0x8086};
  EXPECT_EQ(resource_names(scan()), resource_names(offer)) << "they are vGPUs then, and no second resource";
}

TEST_F(ScannerTest, SaysThatAVirtualFunctionBelowVfioNeedsAToken) {
  rules.accelerators.of_other_vendors = {vfio::PciClass::display_3d};
  rules.domains = {{0x8086, "intel.com"}};
  for (const auto& [address, physical] :
       {std::pair{"0000:19:00.0", ""}, std::pair{"0000:19:00.1", "0000:19:00.0"}})
    kernel.add_function({.address = address,
                         .ids = "8086:56c0",
                         .class_code = 0x030200,
                         .group = static_cast<unsigned>(std::string_view(physical).size()) + 20,
                         .driver = "vfio-pci",
                         .physical_function = physical});
  const ResourceSet offer = scan();
  EXPECT_THAT(resource_names(offer), ElementsAre("intel.com/56c0"));
  ASSERT_EQ(offer.not_advertised.size(), 1U);
  EXPECT_EQ(offer.not_advertised[0].id, "0000:19:00.1");
  EXPECT_THAT(offer.not_advertised[0].reason,
              HasSubstr("its physical function 0000:19:00.0 is on vfio-pci, and a VM then needs a VF token"));
}

TEST_F(ScannerTest, SaysWhyAVirtualFunctionOnVfioIsNotOffered) {
  kernel.add_function({.address = "0000:17:00.0", .group = 20, .driver = "nvidia", .totalvfs = 2});
  kernel.enable_vfs("0000:17:00.0", 2);
  EXPECT_THAT(scan().not_advertised, IsEmpty())
      << "where its vendor's driver has it, it is only not used yet";
  ASSERT_TRUE(kernel.write_attribute("sys/bus/pci/drivers/nvidia/unbind", "0000:17:00.4"));
  ASSERT_TRUE(kernel.write_attribute("sys/bus/pci/devices/0000:17:00.4/driver_override", "vfio-pci"));
  ASSERT_TRUE(kernel.write_attribute("sys/bus/pci/drivers_probe", "0000:17:00.4"));
  const ResourceSet offer = scan();
  EXPECT_THAT(offer.resources, IsEmpty());
  EXPECT_THAT(
      offer.not_advertised,
      ElementsAre(NotAdvertised{
          "0000:17:00.4",
          "a virtual function on vfio-pci: whole GPUs are advertised, and vGPUs by their types", true}));
}

// Virtual functions and GPU share their IDs, so that nothing but the type tells what a pod gets.
TEST_F(ScannerTest, OffersAVgpuThatIsAVirtualFunctionByItsType) {
  kernel.add_function(
      {.address = "0000:17:00.0", .group = 20, .driver = "nvidia", .numa_node = 1, .totalvfs = 3});
  kernel.enable_vfs("0000:17:00.0", 3);
  test::FakeVendorVfio vendor(kernel);
  vendor.add_gpu("0000:17:00.0");
  vendor.set("0000:17:00.4", "1153");
  for (const char* node : {"dev/vfio/100", "dev/vfio/101", "dev/vfio/102"}) kernel.file(node, "");
  const ResourceSet offer = scan();
  ASSERT_THAT(resource_names(offer), ElementsAre("nvidia.com/NVIDIA_L40S-12Q"));
  EXPECT_EQ(offer.resources[0].env_prefix, EnvPrefix::pci_resource) << "to KubeVirt it is a PCI device";
  const AdvertisedDevice expected = {.id = "0000:17:00.4",
                                     .kind = DeviceKind::vendor_vgpu,
                                     .model = "NVIDIA L40S-12Q",
                                     .driver = "nvidia",
                                     .iommu_group = 100,
                                     .numa_node = 1,
                                     .nodes = {"/dev/vfio/vfio", "/dev/vfio/100"},
                                     .problem = {},
                                     .vgpu_type = "1153",
                                     .gpu = "0000:17:00.0",
                                     .bus_path = {"pci0000:00"}};
  EXPECT_THAT(offer.resources[0].devices, ElementsAre(expected));
  EXPECT_THAT(offer.not_advertised, IsEmpty());
  EXPECT_THAT(*nodes_now(expected), ElementsAre("/dev/vfio/vfio", "/dev/vfio/100"));

  vendor.set("0000:17:00.4", "0");
  EXPECT_EQ(refusal(expected), "its vGPU type is 0 now and was 1153");
  EXPECT_THAT(scan().resources, IsEmpty());
}

// A driver whose virtual functions are vfio's leaves DMA to VFIO for its GPU too, and so does not block their
// group.
TEST_F(ScannerTest, OffersAVirtualFunctionThatSharesTheGroupOfItsGpu) {
  kernel.add_function(
      {.address = "0000:17:00.0", .group = 20, .driver = "nvidia", .numa_node = 1, .totalvfs = 3});
  kernel.enable_vfs("0000:17:00.0", 3);
  test::FakeVendorVfio vendor(kernel);
  vendor.add_gpu("0000:17:00.0");
  vendor.set("0000:17:00.4", "1153");
  kernel.file("dev/vfio/20", "");
  const std::string function = "sys/devices/pci0000:00/0000:17:00.4";
  kernel.remove(function + "/iommu_group");
  kernel.link(function + "/iommu_group", "../../../kernel/iommu_groups/20");
  kernel.link("sys/kernel/iommu_groups/20/devices/0000:17:00.4",
              "../../../../devices/pci0000:00/0000:17:00.4");
  const ResourceSet offer = scan();
  ASSERT_THAT(resource_names(offer), ElementsAre("nvidia.com/NVIDIA_L40S-12Q"));
  ASSERT_EQ(offer.resources[0].devices.size(), 1U);
  const AdvertisedDevice& advertised = offer.resources[0].devices[0];
  EXPECT_EQ(advertised.iommu_group, 20U);
  EXPECT_EQ(advertised.problem, "");
  EXPECT_THAT(*nodes_now(advertised), ElementsAre("/dev/vfio/vfio", "/dev/vfio/20"));
}

/// Whoever reads of its driver what a driver serves while it is in a write hangs with it.
class ScannerBesideAWrite : public ScannerTest {
 protected:
  static constexpr const char* kWriter = "proc/700/stat";

  /// By the process 700, to one function.
  void begin_write(const std::string& function, std::chrono::milliseconds left) {
    kernel.file(kWriter,
                "700 (ferry) D 1" + std::string(17, ' ') + " 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 5 0\n");
    kernel.file("proc/sys/kernel/random/boot_id", "b\n");
    ASSERT_TRUE(record_stuck_write(
        kernel, 700, "write /sys/bus/pci/devices/" + function + "/nvidia/current_vgpu_type", "0", left));
  }
  void end_write() { ASSERT_TRUE(forget_stuck_write(kernel, 700)); }
  static constexpr std::chrono::milliseconds kLong = std::chrono::hours(1);
};

TEST_F(ScannerBesideAWrite, KeepsWhatItKnewOfVirtualFunctions) {
  kernel.add_function({.address = "0000:17:00.0", .group = 20, .driver = "nvidia", .totalvfs = 3});
  kernel.enable_vfs("0000:17:00.0", 3);
  for (const char* node : {"dev/vfio/100", "dev/vfio/101", "dev/vfio/102"}) kernel.file(node, "");
  test::FakeVendorVfio vendor(kernel);
  vendor.add_gpu("0000:17:00.0");
  vendor.set("0000:17:00.4", "1153");
  vendor.set("0000:17:00.5", "1153");
  const ResourceSet before = scan();
  ASSERT_THAT(ids(before.resources.at(0)), ElementsAre("0000:17:00.4", "0000:17:00.5"));
  EXPECT_FALSE(before.unsettled);
  const AdvertisedDevice stays = before.resources[0].devices[0];
  const AdvertisedDevice goes = before.resources[0].devices[1];

  begin_write("0000:17:00.5", kLong);
  vendor.set("0000:17:00.4", "0");  // what a read would give
  const ResourceSet during = scan();
  ASSERT_THAT(during.resources, testing::SizeIs(1));
  EXPECT_THAT(during.resources[0].devices, ElementsAre(stays)) << "but for the one that is written to";
  EXPECT_TRUE(during.unsettled);
  EXPECT_EQ(refusal(stays), "");
  EXPECT_THAT(refusal(goes), HasSubstr("has not returned from the kernel"));

  end_write();
  EXPECT_EQ(refusal(stays), "its vGPU type is 0 now and was 1153");
  const ResourceSet after = scan();
  EXPECT_THAT(ids(after.resources.at(0)), ElementsAre("0000:17:00.5"));
  EXPECT_FALSE(after.unsettled);

  begin_write("0000:17:00.6", std::chrono::milliseconds(0));
  const ResourceSet late = scan();
  EXPECT_THAT(late.resources, IsEmpty()) << "that may never return";
  EXPECT_FALSE(late.unsettled);
  EXPECT_THAT(refusal(goes), HasSubstr("has not returned from the kernel"));
}

TEST_F(ScannerBesideAWrite, KeepsTheNamesOfMediatedDevices) {
  add_gpu("0000:81:00.0", 30, "nvidia");
  add_vgpu("0000:81:00.0", kUuid, "nvidia-1", "T4-1Q", 211);
  const AdvertisedDevice before = only_device();
  begin_write("0000:81:00.0", kLong);
  EXPECT_EQ(only_device(), before);
  EXPECT_EQ(refusal(before), "");
  kernel.remove(std::string("sys/bus/mdev/devices/") + kUuid);
  EXPECT_THAT(scan().resources, IsEmpty()) << "which the kernel tells";
}

TEST_F(ScannerTest, OffersNoVgpuWhoseTypeNobodyNames) {
  kernel.add_function({.address = "0000:17:00.0", .group = 20, .driver = "nvidia", .totalvfs = 1});
  kernel.enable_vfs("0000:17:00.0", 1);
  test::FakeVendorVfio vendor(kernel);
  vendor.add_gpu("0000:17:00.0");
  vendor.set("0000:17:00.4", "1153");
  const ResourceSet offer = scan();
  EXPECT_THAT(offer.resources, IsEmpty());
  EXPECT_THAT(
      offer.not_advertised,
      ElementsAre(NotAdvertised{"0000:17:00.4",
                                "nothing on this host names its vGPU type 1153, and a resource is named "
                                "by the type"}));
}

// A full GPU lists no types.
TEST_F(ScannerTest, KeepsTheNameOfATypeThatItsGpuDoesNotListAnyMore) {
  kernel.add_function({.address = "0000:17:00.0", .group = 20, .driver = "nvidia", .totalvfs = 1});
  kernel.enable_vfs("0000:17:00.0", 1);
  kernel.file("dev/vfio/100", "");
  test::FakeVendorVfio vendor(kernel);
  vendor.add_gpu("0000:17:00.0");
  EXPECT_THAT(scan().resources, IsEmpty());
  vendor.set("0000:17:00.4", "1153");
  for (int again = 0; again < 2; ++again) {
    const ResourceSet offer = scan();
    EXPECT_THAT(resource_names(offer), ElementsAre("nvidia.com/NVIDIA_L40S-12Q"));
    EXPECT_THAT(offer.not_advertised, IsEmpty());
  }
}

TEST_F(ScannerTest, OffersNoVgpuThatNoDriverHasTaken) {
  add_gpu("0000:81:00.0", 30, "nvidia");
  add_vgpu("0000:81:00.0", kUuid, "nvidia-1", "T4-1Q", 211);
  for (const char* const link : {"/driver", "/iommu_group"})
    kernel.remove(std::string("sys/devices/pci0000:00/0000:81:00.0/") + kUuid + link);
  EXPECT_THAT(scan().not_advertised,
              ElementsAre(NotAdvertised{kUuid, "no VFIO driver has taken it: no IOMMU group"}));
}

TEST_F(ScannerTest, OffersNoAddressThatKubeVirtCannotRead) {
  add_gpu("10000:01:00.0", 15);
  EXPECT_THAT(scan().not_advertised,
              ElementsAre(testing::Field(&NotAdvertised::reason, HasSubstr("four domain digits"))));
}

TEST_F(ScannerTest, OffersTheOthersWhenOneFunctionCannotBeRead) {
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

TEST_F(ScannerTest, TakesNoVgpuForGoneWhoseGpuItHasNoDescriptorsFor) {
  add_gpu("0000:81:00.0", 30, "nvidia");
  add_vgpu("0000:81:00.0", kUuid, "nvidia-558", "NVIDIA A40-8Q", 211);
  only_device();
  const auto offer = with_one_descriptor([&] { return scanner.scan(); });
  ASSERT_FALSE(offer);
  EXPECT_EQ(offer.error().code, std::errc::too_many_files_open);
  EXPECT_THAT(offer.error().message, HasSubstr("0000:81:00.0"));
  EXPECT_THAT(scan().vanished, IsEmpty());
}

// -- names --

TEST_F(ScannerTest, NamesByAliasAndTemplate) {
  rules.names = {.functions = "gpu-{device}", .vgpus = "vgpu-{name}", .aliases = {{"10de:2330", "big"}}};
  add_gpu("0000:01:00.0", 15);
  add_gpu("0000:02:00.0", 16, "vfio-pci", -1, "10de:2330");
  add_gpu("0000:81:00.0", 30, "nvidia");
  add_vgpu("0000:81:00.0", kUuid, "nvidia-1", "GRID T4-1Q", 211);
  EXPECT_THAT(resource_names(scan()),
              ElementsAre("nvidia.com/big", "nvidia.com/gpu-2684", "nvidia.com/vgpu-GRID_T4-1Q"));
  rules.names.aliases = {{"10de:2684", "big"}, {"10de:2330", "big"}, {"GRID T4-1Q", "small"}};
  const auto merged = scan();
  ASSERT_THAT(resource_names(merged), ElementsAre("nvidia.com/big", "nvidia.com/small"));
  EXPECT_THAT(ids(merged.resources[0]), ElementsAre("0000:01:00.0", "0000:02:00.0"));
}

TEST_F(ScannerTest, FallsBackWhereAnAliasIsNoLegalName) {
  rules.names.aliases = {{"10de:2684", "no good"}, {"GRID T4-1Q", "-"}};
  add_gpu("0000:01:00.0", 15);
  add_gpu("0000:81:00.0", 30, "nvidia");
  add_vgpu("0000:81:00.0", kUuid, "nvidia-1", "GRID T4-1Q", 211);
  const auto offer = scan();
  EXPECT_THAT(resource_names(offer), ElementsAre("nvidia.com/2684", "nvidia.com/GRID_T4-1Q"));
  EXPECT_THAT(offer.warnings, ElementsAre(HasSubstr("advertised as nvidia.com/2684"),
                                          HasSubstr("advertised as nvidia.com/GRID_T4-1Q")));
}

// -- Kata --

TEST_F(ScannerTest, OffersToKataByGroupUnderOneName) {
  rules.kata = true;
  rules.kubevirt = false;
  rules.accelerators.on_request = {vfio::PciClass::bridge_other};
  add_gpu("0000:01:00.0", 15, "vfio-pci", -1, "10de:2330");
  add_audio("0000:01:00.1", 15);
  add_gpu("0000:02:00.0", 16);
  kernel.add_function({.address = "0000:03:00.0",
                       .ids = "10de:22a3",
                       .class_code = 0x068000,
                       .group = 17,
                       .driver = "vfio-pci"});
  const auto offer = scan();
  ASSERT_THAT(resource_names(offer), ElementsAre("nvidia.com/nvswitch", "nvidia.com/pgpu"));
  EXPECT_THAT(ids(offer.resources[0]), ElementsAre("17"));
  EXPECT_THAT(ids(offer.resources[1]), ElementsAre("15", "16"));
  EXPECT_EQ(offer.resources[1].env_prefix, EnvPrefix::none);
  const auto& device = offer.resources[1].devices[0];
  EXPECT_THAT(device.nodes, ElementsAre("/dev/vfio/vfio", "/dev/vfio/15"));
  EXPECT_THAT(*nodes_now(device), ElementsAre("/dev/vfio/vfio", "/dev/vfio/15"));
  rules.kata_names.gpu_alias.clear();
  EXPECT_THAT(resource_names(scan()), ElementsAre("nvidia.com/AD102_GEFORCE_RTX_4090",
                                                  "nvidia.com/GH100_H100_SXM5_80GB", "nvidia.com/nvswitch"));
}

TEST_F(ScannerTest, OffersToKataByVfioDeviceWhereThereIsIommufd) {
  rules.kata = true;
  rules.kubevirt = false;
  add_gpu("0000:01:00.0", 15);
  kernel.file("dev/vfio/devices/vfio0", "");
  kernel.directory("sys/class/misc/iommu");
  const auto device = only_device();
  EXPECT_EQ(device.id, "0");
  EXPECT_THAT(device.nodes, ElementsAre("/dev/vfio/devices/vfio0")) << "never both kinds";
  EXPECT_THAT(*nodes_now(device), ElementsAre("/dev/vfio/devices/vfio0"));
  kernel.remove("dev/vfio/devices/vfio0");
  EXPECT_EQ(only_device().problem, "/dev/vfio/devices/vfio0 is not there");
  EXPECT_EQ(refusal(device), "/dev/vfio/devices/vfio0 is not there");
  // Bound anew it has another number, and its own may be another function's by now.
  kernel.remove("sys/devices/pci0000:00/0000:01:00.0/vfio-dev");
  kernel.directory("sys/devices/pci0000:00/0000:01:00.0/vfio-dev/vfio7");
  kernel.file("dev/vfio/devices/vfio7", "");
  EXPECT_EQ(refusal(device), "its number for Kata is 7 now and was 0");
}

// The first GPU has a node of its own, vfio0, and the second the IOMMU group 0 alone.
TEST_F(ScannerTest, NamesAFunctionWhoseNumberForKataIsThatOfAnother) {
  rules.kata = true;
  rules.kubevirt = false;
  kernel.directory("sys/class/misc/iommu");
  kernel.file("dev/vfio/devices/vfio0", "");
  add_gpu("0000:01:00.0", 15);
  add_gpu("0000:02:00.0", 0);
  kernel.remove("sys/devices/pci0000:00/0000:02:00.0/vfio-dev");
  const auto offer = scan();
  ASSERT_THAT(resource_names(offer), ElementsAre("nvidia.com/pgpu"));
  EXPECT_THAT(ids(offer.resources[0]), ElementsAre("0"));
  EXPECT_THAT(offer.not_advertised,
              ElementsAre(testing::AllOf(
                  testing::Field(&NotAdvertised::id, "0000:02:00.0"),
                  testing::Field(&NotAdvertised::reason, HasSubstr("is that of 0000:01:00.0")))));
}

TEST_F(ScannerTest, NamesForKataAsNvidiasPluginDoesAndAsCdiCanSay) {
  rules.kata = true;
  rules.kubevirt = false;
  rules.kata_names.gpu_alias.clear();
  add_gpu("0000:01:00.0", 15, "vfio-pci", -1, "10de:24fa");  // a name that ends in what no name may end in
  add_gpu("0000:02:00.0", 16, "vfio-pci", -1, "10de:fffe");
  auto offer = scan();
  EXPECT_THAT(resource_names(offer), ElementsAre("nvidia.com/UNKNOWN_DEVICE", "nvidia.com/device_24fa"));
  EXPECT_THAT(offer.warnings, ElementsAre(HasSubstr("it is advertised as nvidia.com/device_24fa")));
  rules.kata_names.gpu_alias = "4090";
  offer = scan();
  EXPECT_THAT(resource_names(offer), ElementsAre("nvidia.com/device_24fa", "nvidia.com/device_fffe"));
  EXPECT_THAT(offer.warnings, testing::Contains(HasSubstr("'nvidia.com/4090': no CDI kind")));
  rules.kata_names.gpu_alias = "g";
  offer = scan();
  EXPECT_THAT(resource_names(offer), ElementsAre("nvidia.com/device_24fa", "nvidia.com/device_fffe"));
  EXPECT_THAT(offer.warnings,
              testing::Contains(HasSubstr("'nvidia.com/g': the CDI library of Kata's runtime")));
}

// It goes by numbers.
TEST_F(ScannerTest, OffersToKataWhatKubeVirtCannotRead) {
  rules.kata = true;
  add_gpu("10000:01:00.0", 15);
  const auto offer = scan();
  EXPECT_THAT(resource_names(offer), ElementsAre("nvidia.com/pgpu"));
  EXPECT_THAT(offer.not_advertised,
              ElementsAre(testing::Field(&NotAdvertised::reason, HasSubstr("four domain digits"))));
}

TEST_F(ScannerTest, OffersToBothUnlessTheNamesAreTheSame) {
  rules.kata = true;
  add_gpu("0000:01:00.0", 15);
  EXPECT_THAT(resource_names(scan()), ElementsAre("nvidia.com/AD102_GEFORCE_RTX_4090", "nvidia.com/pgpu"));
  rules.kata_names.gpu_alias.clear();
  const auto offer = scan();
  EXPECT_THAT(resource_names(offer), ElementsAre("nvidia.com/AD102_GEFORCE_RTX_4090"));
  EXPECT_THAT(
      offer.not_advertised,
      ElementsAre(testing::Field(&NotAdvertised::reason, HasSubstr("the name of devices of another kind"))));
}

// -- what has changed between the scan and the Allocate --

TEST_F(ScannerTest, SeesThatTheDriverIsAnother) {
  add_gpu("0000:01:00.0", 15);
  const auto device = only_device();
  ASSERT_TRUE(kernel.write_attribute("sys/bus/pci/drivers/vfio-pci/unbind", "0000:01:00.0"));
  EXPECT_EQ(refusal(device), "its driver is none now and was vfio-pci");
  ASSERT_TRUE(kernel.write_attribute("sys/bus/pci/drivers/nouveau/bind", "0000:01:00.0"));
  EXPECT_EQ(refusal(device), "its driver is nouveau now and was vfio-pci");
}

TEST_F(ScannerTest, SeesThatACompanionHasLeftVfio) {
  add_gpu("0000:01:00.0", 15);
  add_audio("0000:01:00.1", 15);
  const auto device = only_device();
  EXPECT_EQ(refusal(device), "");
  ASSERT_TRUE(kernel.write_attribute("sys/bus/pci/drivers/vfio-pci/unbind", "0000:01:00.1"));
  EXPECT_EQ(refusal(device), "") << "a driverless member is in nobody's way";
  ASSERT_TRUE(kernel.write_attribute("sys/bus/pci/drivers/snd_hda_intel/bind", "0000:01:00.1"));
  EXPECT_THAT(refusal(device), HasSubstr("0000:01:00.1 (snd_hda_intel) shares its IOMMU group 15"));
}

TEST_F(ScannerTest, SeesThatTheGroupIsAnother) {
  add_gpu("0000:01:00.0", 15);
  const auto device = only_device();
  add_gpu("0000:01:00.0", 18);
  EXPECT_EQ(refusal(device), "its IOMMU group is 18 now and was 15");
}

TEST_F(ScannerTest, SeesThatTheFunctionIsGoneOrAnother) {
  add_gpu("0000:01:00.0", 15);
  const auto device = only_device();
  add_gpu("0000:01:00.0", 15, "vfio-pci", -1, "10de:2330");
  EXPECT_EQ(refusal(device), "its model is 10de:2330 now and was 10de:2684");
  kernel.remove_function("0000:01:00.0");
  EXPECT_THAT(refusal(device), HasSubstr("its model was 10de:2684"));
}

TEST_F(ScannerTest, SeesThatTheFunctionIsOffTheBus) {
  add_gpu("0000:01:00.0", 15);
  const auto device = only_device();
  kernel.file("sys/devices/pci0000:00/0000:01:00.0/config", std::string(64, '\xff'));
  EXPECT_EQ(refusal(device), "its config space reads all ones: it is off the bus");
  EXPECT_THAT(scan().not_advertised,
              ElementsAre(testing::Field(&NotAdvertised::reason, HasSubstr("off the bus"))));
}

TEST_F(ScannerTest, SeesThatTheNodeIsGone) {
  add_gpu("0000:01:00.0", 15);
  const auto device = only_device();
  kernel.remove("dev/vfio/15");
  EXPECT_EQ(refusal(device), "/dev/vfio/vfio and /dev/vfio/15 are not both there");
}

TEST_F(ScannerTest, SeesThatAVgpuIsGoneOrOfAnotherType) {
  add_gpu("0000:81:00.0", 30, "nvidia");
  add_vgpu("0000:81:00.0", kUuid, "nvidia-558", "NVIDIA A40-8Q", 211);
  const auto device = only_device();
  add_vgpu("0000:81:00.0", kUuid, "nvidia-559", "NVIDIA A40-16Q", 211);
  EXPECT_EQ(refusal(device), "its model is NVIDIA A40-16Q now and was NVIDIA A40-8Q");
  kernel.remove(std::string("sys/bus/mdev/devices/") + kUuid);
  EXPECT_THAT(refusal(device), HasSubstr("its model was NVIDIA A40-8Q"));
}

// As of one that was made anew under the same UUID.
TEST_F(ScannerTest, SeesThatTheGroupOfAVgpuIsAnother) {
  add_gpu("0000:81:00.0", 30, "nvidia");
  add_vgpu("0000:81:00.0", kUuid, "nvidia-558", "NVIDIA A40-8Q", 211);
  const auto device = only_device();
  add_vgpu("0000:81:00.0", kUuid, "nvidia-558", "NVIDIA A40-8Q", 212);
  EXPECT_EQ(refusal(device), "its IOMMU group is 212 now and was 211");
}

// What the driver does not name a table does, and a driver may have spaces behind a name.
TEST_F(ScannerTest, GivesAVgpuHoweverItsTypeHasGotItsName) {
  add_gpu("0000:81:00.0", 30, "nvidia");
  add_vgpu("0000:81:00.0", kUuid, "nvidia-558", "NVIDIA A40-8Q ", 211);
  const auto device = only_device();
  EXPECT_EQ(device.model, "NVIDIA A40-8Q");
  EXPECT_EQ(refusal(device), "");
  kernel.remove("sys/devices/pci0000:00/0000:81:00.0/mdev_supported_types/nvidia-558/name");
  EXPECT_EQ(refusal(device), "");
  kernel.link("sys/devices/pci0000:00/0000:81:00.0/" + std::string(kUuid) + "/mdev_type",
              "../mdev_supported_types/nvidia-559");
  EXPECT_EQ(refusal(device), "its vGPU type is nvidia-559 now and was nvidia-558");
}

// A directory in the file's place: read() fails, and that is not to say that the type has no name.
TEST_F(ScannerTest, TakesNoUnreadableNameForAnotherType) {
  add_gpu("0000:81:00.0", 30, "nvidia");
  add_vgpu("0000:81:00.0", kUuid, "nvidia-558", "NVIDIA A40-8Q", 211);
  const auto device = only_device();
  const std::string name = "sys/devices/pci0000:00/0000:81:00.0/mdev_supported_types/nvidia-558/name";
  kernel.remove(name);
  kernel.directory(name);
  EXPECT_THAT(refusal(device), AllOf(HasSubstr("its model was NVIDIA A40-8Q"), HasSubstr("directory")));
}

TEST_F(ScannerTest, GivesNoVgpuWhoseGpuIsOffTheBus) {
  add_gpu("0000:81:00.0", 30, "nvidia");
  add_vgpu("0000:81:00.0", kUuid, "nvidia-558", "NVIDIA A40-8Q", 211);
  const auto mediated = only_device();
  EXPECT_EQ(refusal(mediated), "");
  kernel.file("sys/devices/pci0000:00/0000:81:00.0/config", std::string(64, '\xff'));
  EXPECT_EQ(refusal(mediated), "its GPU 0000:81:00.0: its config space reads all ones: it is off the bus");
}

}  // namespace
}  // namespace ferry::plugin
