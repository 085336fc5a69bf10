// SPDX-License-Identifier: Apache-2.0
// Virtual functions of other vendors' GPUs, which go to VMs whole.
#include <gmock/gmock.h>

#include "mdev/framework.h"
#include "mdev/vgpu_inventory.h"
#include "mdev/virtual_functions.h"
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
    kernel.add_driver({.name = "gim", .ids = {"1002:75a3", "1002:75b3", "1002:05b3"}, .sriov = true});
    kernel.add_driver({.name = "xe", .ids = {"8086:56c0"}});
    kernel.add_driver({.name = "i915", .ids = {"8086:56c0"}, .sriov = true});
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
  /// An MI355X without functions; theirs has an ID with a zero in front.
  void add_bare() {
    kernel.add_function({.address = kGpu,
                         .ids = "1002:75a3",
                         .class_code = 0x120000,
                         .group = 5,
                         .driver = "gim",
                         .totalvfs = 8,
                         .vf_ids = "1002:05b3"});
  }
  static vfio::AcceleratorRules rules_of_nvidia() {
    vfio::AcceleratorRules rules{.vendors = {0x10de}, .classes = {vfio::PciClass::display_3d}};
    rules.of_other_vendors = {vfio::PciClass::vga, vfio::PciClass::processing_accelerator};
    return rules;
  }
  VgpuInventory read() const {
    vfio::AcceleratorRules rules = rules_of_nvidia();
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
  EXPECT_EQ(gpu.parents.front().types.front().max_instances, 3U);
}

TEST_F(WholeFunctions, AreVgpusOnVfioDrivers) {
  add_instinct();
  const VgpuInventory found = read();
  const VgpuGpu& gpu = found.gpus.at(0);
  ASSERT_EQ(gpu.devices.size(), 1U);
  EXPECT_EQ(gpu.devices[0].id.text, kSecond);
  EXPECT_EQ(gpu.devices[0].short_name, "1002:75b3");
  EXPECT_EQ(gpu.devices[0].driver, "vfio-pci");
  EXPECT_EQ(gpu.devices[0].nodes.size(), 1U);
  EXPECT_FALSE(gpu.devices[0].is_mediated());
  EXPECT_FALSE(gpu.devices[0].params);
  EXPECT_TRUE(gpu.host_has_vfs);
  EXPECT_THAT(gpu.functions_away, IsEmpty());
  EXPECT_THAT(carriers_of_vgpus(found), IsEmpty()) << "each can be bound and unbound by name";
  EXPECT_TRUE(whole_functions().exists(kernel, gpu.devices[0]));
  VgpuDevice other = gpu.devices[0];
  other.parent = at(kFirst);
  EXPECT_FALSE(whole_functions().exists(kernel, other));
}

TEST_F(WholeFunctions, AreMadeByProfiles) {
  add_instinct();
  const VgpuInventory found = read();
  const VgpuGpu& gpu = found.gpus.at(0);
  EXPECT_TRUE(gpu.on_virtual_functions());
  EXPECT_FALSE(gpu.on_itself());
  EXPECT_FALSE(gpu.may_get_virtual_functions());
  EXPECT_EQ(gpu.obstacle, "");
}

TEST_F(WholeFunctions, AreForeseenOnAGpuWithoutAny) {
  add_bare();
  const VgpuInventory found = read();
  const VgpuGpu& gpu = found.gpus.at(0);
  EXPECT_EQ(gpu.framework, &whole_functions());
  ASSERT_EQ(gpu.unlisted.size(), 1U);
  EXPECT_EQ(gpu.unlisted[0].id, "1002:05b3") << "the kernel writes 5b3";
  EXPECT_EQ(gpu.unlisted[0].max_instances, 8U);
  EXPECT_EQ(gpu.vf_autoprobe, true);
  EXPECT_EQ(gpu.obstacle, "none of its 8 virtual functions is enabled; each would be a 1002:05b3");
  EXPECT_THAT(kept_for_vgpus(found), IsEmpty()) << "it can go to a VM whole";
}

TEST_F(WholeFunctions, ComeWithoutADriver) {
  add_bare();
  const VfSwitch on{.host = kernel, .writer = kernel, .pause = [](auto) {}};
  ASSERT_TRUE(whole_functions().enable_functions(on, at(kGpu), 2, false));
  EXPECT_THAT(kernel.writes(), ElementsAre("0 > sys/bus/pci/devices/0000:17:00.0/sriov_drivers_autoprobe",
                                           "2 > sys/bus/pci/devices/0000:17:00.0/sriov_numvfs",
                                           "1 > sys/bus/pci/devices/0000:17:00.0/sriov_drivers_autoprobe"));
  for (const std::string& function : kernel.vfs_of(kGpu)) EXPECT_EQ(kernel.driver_of(function), "");
  EXPECT_FALSE(read().gpus.at(0).host_has_vfs);
  ASSERT_TRUE(whole_functions().disable_functions(on, at(kGpu)));
  EXPECT_THAT(kernel.vfs_of(kGpu), IsEmpty());
  ASSERT_TRUE(whole_functions().enable_functions(on, at(kGpu), 1, true));
  EXPECT_EQ(kernel.driver_of(kernel.vfs_of(kGpu).at(0)), "gim");
}

TEST_F(WholeFunctions, AreProbedAgainAfterAFailure) {
  add_bare();
  const VfSwitch on{.host = kernel, .writer = kernel, .pause = [](auto) {}};
  const auto none = whole_functions().enable_functions(on, at(kGpu), 9, false);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, std::errc::result_out_of_range);
  EXPECT_EQ(read_autoprobe(kernel, at(kGpu)), true);
}

TEST_F(WholeFunctions, ShowTheirProvisioning) {
  add_bare();
  const VfSwitch on{.host = kernel, .writer = kernel, .pause = [](auto) {}};
  ASSERT_TRUE(whole_functions().enable_functions(on, at(kGpu), 2, false));
  const std::string second = kernel.vfs_of(kGpu).at(1);
  const VgpuId id{second};
  EXPECT_FALSE(whole_functions().params_writes(kernel, at(second.c_str()), id, "exec_quantum_ms=20"));
  const std::string profile = std::string("sys/devices/pci0000:00/") + kGpu + "/sriov_admin/vf2/profile/";
  kernel.file(profile + "exec_quantum_ms", "0\n");
  kernel.file(profile + "preempt_timeout_us", "1000\n");
  const auto writes = whole_functions().params_writes(kernel, at(second.c_str()), id, "exec_quantum_ms=20");
  ASSERT_TRUE(writes);
  ASSERT_EQ(writes->size(), 2U);
  EXPECT_EQ(writes->at(0).path.string(),
            "sys/bus/pci/devices/0000:17:00.0/sriov_admin/vf2/profile/exec_quantum_ms");
  EXPECT_EQ(writes->at(0).value, "20");
  EXPECT_EQ(writes->at(1).value, "0") << "all are replaced";
  for (const char* bad : {"exec_quantum_ms=0", "exec_quantum_ms=x", "exec_quantum_ms", "exec_quantum_ms=020",
                          "sched_priority=low"})
    EXPECT_FALSE(whole_functions().params_writes(kernel, at(second.c_str()), id, bad)) << bad;
  EXPECT_TRUE(whole_functions().params_writes(kernel, at(second.c_str()), id, " "));
  kernel.file(std::string("sys/devices/pci0000:00/") + second + "/driver_override", "vfio-pci\n");
  ASSERT_TRUE(kernel.write("sys/bus/pci/drivers/vfio-pci/bind", second));
  const VgpuInventory found = read();
  ASSERT_EQ(found.gpus.at(0).devices.size(), 1U);
  EXPECT_EQ(found.gpus.at(0).devices[0].params, "preempt_timeout_us=1000");
}

TEST_F(WholeFunctions, HaveTheirVendorNamed) {
  const vfio::AcceleratorRules plain = rules_of_nvidia();
  add_bare();
  kernel.add_function({.address = "0000:18:00.0",
                       .ids = "8086:56c0",
                       .class_code = 0x030000,
                       .driver = "i915",
                       .totalvfs = 7});
  const auto named = naming_vgpu_vendors(vfio::scan(kernel).value(), plain).named_vendors;
  EXPECT_THAT(named, ElementsAre(0x1002)) << "i915 has the files, and may make no functions";
  kernel.enable_vfs("0000:18:00.0", 2);
  EXPECT_THAT(naming_vgpu_vendors(vfio::scan(kernel).value(), plain).named_vendors,
              ElementsAre(0x1002, 0x8086));
}

TEST_F(WholeFunctions, AreReadAgain) {
  add_instinct();
  const vfio::Inventory inventory = vfio::scan(kernel).value();
  VgpuGpu gpu = scan_gpu_again(kernel, inventory, read().gpus.at(0)).value();
  EXPECT_EQ(gpu.framework, &whole_functions());
  EXPECT_EQ(gpu.parents.size(), 3U);
  // The inventory is older than this bind.
  kernel.file(std::string("sys/devices/pci0000:00/") + kFirst + "/driver_override", "vfio-pci\n");
  ASSERT_TRUE(kernel.write("sys/bus/pci/drivers/gim/unbind", kFirst));
  ASSERT_TRUE(kernel.write("sys/bus/pci/drivers/vfio-pci/bind", kFirst));
  scan_devices_again(kernel, inventory, VgpuFacts::all, gpu);
  EXPECT_EQ(gpu.devices.size(), 2U);
  EXPECT_EQ(whole_functions().available_now(kernel, at(kFirst), "1002:75b3").value(), 0U);
  ASSERT_TRUE(kernel.write("sys/bus/pci/drivers/vfio-pci/unbind", kFirst));
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

TEST_F(WholeFunctions, NeedAGpuThatCanHaveFunctions) {
  add(kGpu, "1002:75a3", "gim");
  EXPECT_EQ(read().gpus.at(0).framework, &no_framework());
}

}  // namespace
}  // namespace ferry::mdev
