// SPDX-License-Identifier: Apache-2.0
// Virtual functions of other vendors' GPUs, which go to VMs whole.
#include <gmock/gmock.h>

#include "mdev/framework.h"
#include "mdev/vgpu_inventory.h"
#include "tests/support/fake_kernel.h"

namespace ferry::mdev {
namespace {

using test::FakeKernel;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr const char* kGpu = "0000:17:00.0";
constexpr const char* kFirst = "0000:17:02.0";
constexpr const char* kSecond = "0000:17:02.1";
constexpr const char* kThird = "0000:17:02.2";

class WholeFunctions : public testing::Test {
 protected:
  WholeFunctions() {
    kernel.add_driver({.name = "gim", .ids = {"1002:75a3", "1002:75b3"}});
    kernel.add_driver({.name = "xe", .ids = {"8086:56c0"}});
    kernel.add_driver({.name = "amdgpu", .ids = {"1002:744c"}});
    kernel.add_driver({.name = "vfio-pci", .vfio = true});
  }
  void add(const std::string& address, const std::string& ids, const std::string& driver,
           const std::string& physical = {}) {
    kernel.add_function({.address = address,
                         .ids = ids,
                         .class_code = 0x120000,
                         .group = ++groups,
                         .driver = driver,
                         .physical_function = physical});
  }
  /// An MI355X with two functions on its driver and one on vfio-pci.
  void add_instinct() {
    add(kGpu, "1002:75a3", "gim");
    add(kFirst, "1002:75b3", "gim", kGpu);
    add(kSecond, "1002:75b3", "vfio-pci", kGpu);
    add(kThird, "1002:75b3", "gim", kGpu);
  }
  VgpuInventory read() const {
    vfio::AcceleratorRules rules{.vendors = {0x10de}, .classes = {vfio::PciClass::display_3d}};
    rules.of_other_vendors = {vfio::PciClass::processing_accelerator};
    rules.named_vendors = {0x1002, 0x8086};
    return scan_vgpus(kernel, vfio::scan(kernel).value(), rules).value();
  }
  static vfio::PciAddress at(const char* address) { return vfio::PciAddress::parse(address).value(); }

  FakeKernel kernel;
  unsigned groups = 10;
};

TEST_F(WholeFunctions, OfferOneTypeEach) {
  add_instinct();
  const VgpuInventory found = read();
  const VgpuGpu& gpu = found.gpus.at(0);
  EXPECT_EQ(gpu.framework, &whole_functions());
  std::vector<std::string> offers;
  for (const VgpuParent& parent : gpu.parents) {
    EXPECT_FALSE(parent.problem);
    for (const VgpuType& type : parent.types)
      offers.push_back(parent.address.text() + " " + type.id + " x " + std::to_string(type.available));
  }
  EXPECT_THAT(offers, ElementsAre("0000:17:02.0 1002:75b3 x 1", "0000:17:02.1 1002:75b3 x 0",
                                  "0000:17:02.2 1002:75b3 x 1"));
  const std::vector<VgpuType> types = types_of(gpu);
  ASSERT_EQ(types.size(), 1U);
  EXPECT_EQ(types[0].available, 2U);
  EXPECT_EQ(types[0].max_instances, 3U);
}

TEST_F(WholeFunctions, AreNoVgpusWhileVmsHaveThem) {
  add_instinct();
  const VgpuInventory found = read();
  const VgpuGpu& gpu = found.gpus.at(0);
  EXPECT_THAT(gpu.devices, IsEmpty());
  EXPECT_THAT(gpu.functions_away, ElementsAre(at(kSecond)));
  EXPECT_THAT(carriers_of_vgpus(found), IsEmpty()) << "each can be bound and unbound by name";
}

TEST_F(WholeFunctions, AreNotMadeByProfiles) {
  add_instinct();
  const VgpuInventory found = read();
  const VgpuGpu& gpu = found.gpus.at(0);
  EXPECT_FALSE(gpu.host_driver);
  EXPECT_FALSE(gpu.on_virtual_functions());
  EXPECT_FALSE(gpu.on_itself());
  EXPECT_FALSE(gpu.may_get_virtual_functions());
  EXPECT_EQ(gpu.obstacle, "its driver gim makes whole virtual functions, and no vGPU types");
}

TEST_F(WholeFunctions, AreReadAgain) {
  add_instinct();
  const vfio::Inventory inventory = vfio::scan(kernel).value();
  VgpuGpu gpu = scan_gpu_again(kernel, inventory, read().gpus.at(0)).value();
  EXPECT_EQ(gpu.framework, &whole_functions());
  EXPECT_EQ(gpu.parents.size(), 3U);
  scan_devices_again(kernel, inventory, VgpuFacts::all, gpu);
  EXPECT_THAT(gpu.devices, IsEmpty());
  EXPECT_EQ(whole_functions().available_now(kernel, at(kFirst), "1002:75b3").value(), 1U);
  EXPECT_EQ(whole_functions().available_now(kernel, at(kFirst), "1002:744c").value(), 0U);
  EXPECT_EQ(whole_functions().available_now(kernel, at(kSecond), "1002:75b3").value(), 0U);
}

TEST_F(WholeFunctions, AreKnownByTheGpusDriver) {
  add(kGpu, "8086:56c0", "xe");
  add("0000:17:00.1", "8086:56c0", "vfio-pci", kGpu);
  add("0000:18:00.0", "1002:744c", "amdgpu");
  add("0000:18:00.1", "1002:744c", "vfio-pci", "0000:18:00.0");
  const VgpuInventory found = read();
  EXPECT_EQ(found.gpus.at(0).framework, &whole_functions());
  EXPECT_EQ(found.gpus.at(1).framework, &no_framework());
  EXPECT_THAT(found.gpus.at(1).parents, IsEmpty());
}

// As under i915, whose GPU may have mediated devices beside its functions.
TEST_F(WholeFunctions, GiveWayToMediatedDevicesOnTheGpu) {
  add_instinct();
  const std::string gpu = kGpu;
  const std::string home = "sys/devices/pci0000:00/" + gpu + "/";
  const std::string uuid = "3f0c2f4e-5f0b-4a57-9d0a-2f1f3f5a7c11";
  kernel.link("sys/class/mdev_bus/" + gpu, "../../devices/pci0000:00/" + gpu);
  kernel.file(home + "mdev_supported_types/i915-1/name", "GVTg 1\n");
  kernel.file(home + "mdev_supported_types/i915-1/available_instances", "3\n");
  kernel.link(home + uuid + "/mdev_type", "../mdev_supported_types/i915-1");
  kernel.link("sys/bus/mdev/devices/" + uuid, "../../../devices/pci0000:00/" + gpu + "/" + uuid);
  const VgpuInventory found = read();
  EXPECT_EQ(found.gpus.at(0).framework, &mediated_on_gpu());
  ASSERT_EQ(found.gpus.at(0).devices.size(), 1U);
  EXPECT_TRUE(found.gpus.at(0).devices.at(0).is_mediated());
}

TEST_F(WholeFunctions, NeedAGpuThatHasFunctions) {
  add(kGpu, "1002:75a3", "gim");
  EXPECT_EQ(read().gpus.at(0).framework, &no_framework());
}

}  // namespace
}  // namespace ferry::mdev
