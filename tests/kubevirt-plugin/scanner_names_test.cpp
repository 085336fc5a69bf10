// SPDX-License-Identifier: Apache-2.0
// The names that the scanner gives resources and devices, for KubeVirt and for Kata.
#include <gmock/gmock.h>

#include "tests/kubevirt-plugin/scanned_host.h"

namespace ferry::plugin {
namespace {

using plugin_test::ScannerTest;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

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

TEST(Aliases, TakeIdsInEitherCase) {
  const auto model = [](const char* alias) { return parse_alias(alias).value_or(std::pair("", "")).first; };
  EXPECT_EQ(model("10DE:26B9=x"), "10de:26b9") << "as KubeVirt's object has them";
  EXPECT_EQ(model("10de:26b9=x"), "10de:26b9");
  for (const char* type : {"NVIDIA A40-8Q", "10DE:26BG", "10DE:26B90", "10DE26B9:"})
    EXPECT_EQ(model((std::string(type) + "=x").c_str()), type);
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

TEST_F(ScannerTest, AdvertisesToKataByGroupUnderOneName) {
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

TEST_F(ScannerTest, AdvertisesToKataByVfioDeviceWhereThereIsIommufd) {
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
TEST_F(ScannerTest, AdvertisesToKataWhatKubeVirtCannotRead) {
  rules.kata = true;
  add_gpu("10000:01:00.0", 15);
  const auto offer = scan();
  EXPECT_THAT(resource_names(offer), ElementsAre("nvidia.com/pgpu"));
  EXPECT_THAT(offer.not_advertised,
              ElementsAre(testing::Field(&NotAdvertised::reason, HasSubstr("four domain digits"))));
}

TEST_F(ScannerTest, AdvertisesToBothUnlessTheNamesAreTheSame) {
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

}  // namespace
}  // namespace ferry::plugin
