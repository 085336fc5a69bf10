// SPDX-License-Identifier: Apache-2.0
// Changes of the host between the scan and an Allocate.
#include <string>

#include <gmock/gmock.h>

#include "tests/kubevirt-plugin/scanned_host.h"

namespace ferry::plugin {
namespace {

using plugin_test::ScannerTest;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

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

// A vGPU that was made anew under the same UUID has another group.
TEST_F(ScannerTest, SeesThatTheGroupOfAVgpuIsAnother) {
  add_gpu("0000:81:00.0", 30, "nvidia");
  add_vgpu("0000:81:00.0", kUuid, "nvidia-558", "NVIDIA A40-8Q", 211);
  const auto device = only_device();
  add_vgpu("0000:81:00.0", kUuid, "nvidia-558", "NVIDIA A40-8Q", 212);
  EXPECT_EQ(refusal(device), "its IOMMU group is 212 now and was 211");
}

// A table has the names that the driver lacks, and a driver may write spaces after a name.
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
