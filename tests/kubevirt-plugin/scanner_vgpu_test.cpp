// SPDX-License-Identifier: Apache-2.0
// The scanner and vGPUs, mediated devices and virtual functions alike.
#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include <gmock/gmock.h>

#include "hostfs/stuck_writes.h"
#include "tests/kubevirt-plugin/scanned_host.h"
#include "tests/support/fake_vendor_vfio.h"

namespace ferry::plugin {
namespace {

using plugin_test::ScannerTest;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST_F(ScannerTest, AdvertisesAVgpuByItsType) {
  add_gpu("0000:81:00.0", 30, "nvidia", 1, "10de:2235");
  add_vgpu("0000:81:00.0", kUuid, "nvidia-558", "NVIDIA A40-8Q", 211);
  const auto offer = scan();
  ASSERT_THAT(resource_names(offer), ElementsAre("nvidia.com/NVIDIA_A40-8Q"));
  EXPECT_EQ(offer.resources[0].env_prefix, EnvPrefix::mdev_pci_resource);
  const ScannedDevice expected = {.id = kUuid,
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
TEST_F(ScannerTest, KeepsAVgpuUnderItsNameWhileItsDriverIsSilent) {
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

TEST_F(ScannerTest, KeepsAVirtualFunctionsVgpuWhileItsDriverIsSilent) {
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
  // A vGPU that is gone stays gone, even if another attribute of its function cannot be read.
  vendor.set("0000:17:00.5", "0");
  break_it("0000:17:00.5/nvidia/creatable_vgpu_types");
  EXPECT_THAT(ids(scan().resources.at(0)), ElementsAre("0000:17:00.4"));
}

TEST_F(ScannerTest, AdvertisesNoVgpuWhoseNameCouldNeverBeRead) {
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
  const ScannedDevice device = only_device();
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

TEST_F(ScannerTest, AdvertisesNoVgpuWithAnIllegalName) {
  add_gpu("0000:81:00.0", 30, "nvidia");
  add_vgpu("0000:81:00.0", kUuid, "nvidia-1", "T4 (1Q)", 211);
  const auto offer = scan();
  EXPECT_THAT(offer.resources, IsEmpty());
  EXPECT_THAT(offer.not_advertised, ElementsAre(testing::Field(&NotAdvertised::reason, HasSubstr("'('"))));
}

// Other vendors have no vGPU types: a virtual function that vfio-pci has goes to a VM whole.
TEST_F(ScannerTest, AdvertisesOtherVendorsVirtualFunctionsThatAreOnVfio) {
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
  const ScannedDevice& amd = offer.resources.at(0).devices.at(0);
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

TEST_F(ScannerTest, SaysWhyAVirtualFunctionOnVfioIsNotAdvertised) {
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
TEST_F(ScannerTest, AdvertisesAVgpuThatIsAVirtualFunctionByItsType) {
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
  const ScannedDevice expected = {.id = "0000:17:00.4",
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
TEST_F(ScannerTest, AdvertisesAVirtualFunctionThatSharesTheGroupOfItsGpu) {
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
  const ScannedDevice& advertised = offer.resources[0].devices[0];
  EXPECT_EQ(advertised.iommu_group, 20U);
  EXPECT_EQ(advertised.problem, "");
  EXPECT_THAT(*nodes_now(advertised), ElementsAre("/dev/vfio/vfio", "/dev/vfio/20"));
}

/// Whoever reads of its driver what a driver serves while it is in a write hangs with it.
class ScannerBesideAWrite : public ScannerTest {
 protected:
  static constexpr const char* kWriter = "proc/700/stat";

  /// The process 700 begins a write to one function.
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
  const ScannedDevice stays = before.resources[0].devices[0];
  const ScannedDevice goes = before.resources[0].devices[1];

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
  const ScannedDevice before = only_device();
  begin_write("0000:81:00.0", kLong);
  EXPECT_EQ(only_device(), before);
  EXPECT_EQ(refusal(before), "");
  kernel.remove(std::string("sys/bus/mdev/devices/") + kUuid);
  EXPECT_THAT(scan().resources, IsEmpty()) << "which the kernel tells";
}

TEST_F(ScannerTest, AdvertisesNoVgpuWhoseTypeNobodyNames) {
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

TEST_F(ScannerTest, AdvertisesNoVgpuThatNoDriverHasTaken) {
  add_gpu("0000:81:00.0", 30, "nvidia");
  add_vgpu("0000:81:00.0", kUuid, "nvidia-1", "T4-1Q", 211);
  for (const char* const link : {"/driver", "/iommu_group"})
    kernel.remove(std::string("sys/devices/pci0000:00/0000:81:00.0/") + kUuid + link);
  EXPECT_THAT(scan().not_advertised,
              ElementsAre(NotAdvertised{kUuid, "no VFIO driver has taken it: no IOMMU group"}));
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

}  // namespace
}  // namespace ferry::plugin
