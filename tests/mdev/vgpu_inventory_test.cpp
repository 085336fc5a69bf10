// SPDX-License-Identifier: Apache-2.0
#include "mdev/vgpu_inventory.h"

#include <gmock/gmock.h>

#include "mdev/framework.h"
#include "tests/support/fake_vendor_vfio.h"

namespace ferry::mdev {
namespace {

using test::FakeKernel;
using test::FakeMdev;
using test::FakeVendorVfio;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr const char* kA = "5b6c0f0e-3b1d-4f0e-9a57-2f6f5f1f7a10";

vfio::PciAddress at(const std::string& text) {
  return vfio::PciAddress::parse(text).value();
}

/// A node with one GPU of each kind; a test adds what it is about.
class VgpuScan : public testing::Test {
 protected:
  VgpuScan() {
    kernel.add_driver({.name = "nvidia", .ids = {"10de:1eb8", "10de:26b9", "10de:2684"}});
    kernel.add_driver({.name = "vfio-pci", .vfio = true});
    kernel.add_driver({.name = "i915", .ids = {"8086:3e92"}});
  }
  void add_t4(const std::string& address) {
    kernel.add_function({.address = address,
                         .ids = "10de:1eb8",
                         .class_code = 0x030200,
                         .driver = "nvidia",
                         .totalvfs = 16});  // a T4 has the files and never a virtual function
    mdev.add_parent(address);
  }
  /// An L40S with so many virtual functions.
  void add_sriov_gpu(unsigned vfs = 1, const std::string& address = "0000:17:00.0") {
    kernel.add_function({.address = address,
                         .ids = "10de:26b9",
                         .class_code = 0x030200,
                         .group = 20,
                         .driver = "nvidia",
                         .totalvfs = 16});
    kernel.enable_vfs(address, vfs);
  }
  VgpuInventory read() const {
    const vfio::AcceleratorRules rules{.vendors = {0x10de},
                                       .classes = {vfio::PciClass::vga, vfio::PciClass::display_3d}};
    return scan_vgpus(kernel, vfio::scan(kernel).value(), rules).value();
  }

  FakeKernel kernel;
  FakeMdev mdev{kernel};
  FakeVendorVfio vendor{kernel};
};

TEST_F(VgpuScan, NumbersDisplayFunctionsOfTheVendorByAddressWhateverTheirDriver) {
  kernel.add_function({.address = "0000:65:00.0", .group = 1});
  kernel.add_function({.address = "10000:01:00.0"});
  kernel.add_function({.address = "0000:00:02.0", .ids = "8086:3e92"});
  kernel.add_function({.address = "0000:65:00.1", .ids = "10de:22ba", .class_code = 0x040300});
  kernel.add_function({.address = "0000:30:00.0", .class_code = 0x030001});
  add_sriov_gpu();
  add_t4("0000:05:00.0");
  const VgpuInventory seen = read();
  std::vector<std::string> labels;
  labels.reserve(seen.gpus.size());
  for (const VgpuGpu& gpu : seen.gpus) labels.push_back(gpu.label());
  EXPECT_THAT(labels, ElementsAre("GPU 0 (0000:05:00.0)", "GPU 1 (0000:17:00.0)", "GPU 2 (0000:65:00.0)",
                                  "GPU 3 (10000:01:00.0)"));
  EXPECT_EQ(seen.find(at("0000:65:00.0"))->index, 2U);
  EXPECT_EQ(seen.find(at("0000:65:00.1")), nullptr);
}

TEST_F(VgpuScan, NumbersAGpuOfAnotherVendorAlikeWhicheverAreNamed) {
  kernel.add_function({.address = "0000:65:00.0", .group = 1});
  kernel.add_function({.address = "0000:03:00.0", .ids = "1002:744c"});
  kernel.add_function({.address = "0000:04:00.0", .ids = "10de:22a3", .class_code = 0x068000});
  kernel.add_function({.address = "0000:05:00.0", .ids = "8086:3e92"});
  kernel.add_function({.address = "0000:07:00.0", .ids = "8086:3e92"});
  vfio::AcceleratorRules rules{.vendors = {0x10de}, .classes = {vfio::PciClass::vga}};
  rules.on_request = {vfio::PciClass::bridge_other};
  rules.of_other_vendors = {vfio::PciClass::vga};
  const auto labels = [&] {
    const VgpuInventory seen = scan_vgpus(kernel, vfio::scan(kernel).value(), rules).value();
    std::vector<std::string> out;
    out.reserve(seen.gpus.size());
    for (const VgpuGpu& gpu : seen.gpus) out.push_back(gpu.label());
    return out;
  };
  EXPECT_THAT(labels(), ElementsAre("GPU 0 (0000:65:00.0)"));
  rules.named_vendors = {0x8086};
  EXPECT_THAT(labels(), ElementsAre("GPU 0 (0000:65:00.0)", "GPU 2 (0000:05:00.0)", "GPU 3 (0000:07:00.0)"));
  rules.named_vendors = {0x1002};
  EXPECT_THAT(labels(), ElementsAre("GPU 0 (0000:65:00.0)", "GPU 1 (0000:03:00.0)"));
  rules.named_vendors.clear();
  rules.named = {at("0000:04:00.0"), at("0000:07:00.0")};
  EXPECT_THAT(labels(), ElementsAre("GPU 0 (0000:65:00.0)", "GPU 3 (0000:07:00.0)", "GPU 4 (0000:04:00.0)"));
}

TEST_F(VgpuScan, SeesVgpusOnTheGpuItself) {
  add_t4("0000:05:00.0");
  mdev.add_device("0000:05:00.0", "nvidia-232", kA);
  const VgpuInventory seen = read();
  const VgpuGpu& gpu = seen.gpus.at(0);
  EXPECT_EQ(gpu.framework, &mediated_on_gpu());
  EXPECT_EQ(gpu.obstacle, "");
  ASSERT_EQ(gpu.parents.size(), 1U);
  EXPECT_EQ(gpu.parents[0].types.size(), test::t4_types().size());
  ASSERT_EQ(gpu.devices.size(), 1U);
  EXPECT_EQ(seen.find(VgpuId{kA})->short_name, "T4-4Q");
  EXPECT_EQ(seen.find(VgpuId{"no-such"}), nullptr);
}

std::vector<std::string> addresses_of(const VgpuGpu& gpu) {
  std::vector<std::string> out;
  out.reserve(gpu.parents.size());
  for (const VgpuParent& parent : gpu.parents) out.push_back(parent.address.text());
  return out;
}
std::vector<std::string> names_of(const VgpuGpu& gpu) {
  std::vector<std::string> out;
  out.reserve(gpu.devices.size());
  for (const VgpuDevice& device : gpu.devices) out.push_back(device.short_name + " " + device.id.text);
  return out;
}

TEST_F(VgpuScan, SeesMediatedDevicesOnVirtualFunctions) {
  add_sriov_gpu(2);
  mdev.add_vf_parents("0000:17:00.0");
  mdev.add_device("0000:17:00.5", "nvidia-1153", kA);
  const VgpuInventory seen = read();
  const VgpuGpu& gpu = seen.gpus.at(0);
  EXPECT_EQ(gpu.framework, &mediated_on_functions());
  EXPECT_TRUE(gpu.on_virtual_functions());
  EXPECT_EQ(gpu.obstacle, "");
  EXPECT_THAT(addresses_of(gpu), ElementsAre("0000:17:00.4", "0000:17:00.5"));
  ASSERT_EQ(gpu.devices.size(), 1U);
  EXPECT_EQ(gpu.devices[0].parent, at("0000:17:00.5"));
  EXPECT_EQ(gpu.devices[0].short_name, "L40S-12Q");
  const auto available = [&](std::size_t parent) {
    return std::ranges::find(gpu.parents.at(parent).types, "nvidia-1153", &VgpuType::id)->available;
  };
  EXPECT_EQ(available(0), 1U);
  EXPECT_EQ(available(1), 0U);
}

TEST_F(VgpuScan, ReadsWhatATypeIsOncePerGpu) {
  // Two boards may give one number to two types; two functions of one board do not.
  add_sriov_gpu(1);
  add_sriov_gpu(1, "0000:65:00.0");
  mdev.add_parent("0000:17:00.4", {{"nvidia-9", "NVIDIA L40S-12Q", 12288, 4}});
  mdev.add_parent("0000:65:00.4", {{"nvidia-9", "NVIDIA L40-8Q", 8192, 6}});
  const VgpuInventory seen = read();
  EXPECT_EQ(seen.gpus.at(0).parents.at(0).types.at(0).short_name, "L40S-12Q");
  EXPECT_EQ(seen.gpus.at(1).parents.at(0).types.at(0).short_name, "L40-8Q");
}

TEST_F(VgpuScan, TakesVirtualFunctionsByTheirNumbers) {
  add_sriov_gpu(16);
  vendor.add_gpu("0000:17:00.0");
  const VgpuGpu gpu = read().gpus.at(0);
  EXPECT_EQ(addresses_of(gpu), kernel.vfs_of("0000:17:00.0"));
  EXPECT_EQ(gpu.parents.back().address, at("0000:17:02.3"));
}

TEST_F(VgpuScan, SeesVendorSpecificVfio) {
  add_sriov_gpu(3);
  vendor.add_gpu("0000:17:00.0");
  vendor.set("0000:17:00.5", "1153");
  const VgpuGpu gpu = read().gpus.at(0);
  EXPECT_EQ(gpu.framework, &vendor_vfio());
  EXPECT_TRUE(gpu.on_virtual_functions());
  EXPECT_EQ(gpu.obstacle, "");
  EXPECT_THAT(addresses_of(gpu), ElementsAre("0000:17:00.4", "0000:17:00.5", "0000:17:00.6"));
  EXPECT_THAT(names_of(gpu), ElementsAre("L40S-12Q 0000:17:00.5")) << "named by a sibling";
}

TEST_F(VgpuScan, NeverTakesANameFromAnotherGpu) {
  add_sriov_gpu(1);
  add_sriov_gpu(1, "0000:65:00.0");
  vendor.add_gpu("0000:17:00.0");
  vendor.add_gpu("0000:65:00.0");
  vendor.set("0000:17:00.4", "1153");
  EXPECT_THAT(names_of(read().gpus.at(0)), ElementsAre("1153 0000:17:00.4"));
}

TEST_F(VgpuScan, PassesOverVirtualFunctionsOnAnotherDriver) {
  add_sriov_gpu(2);
  vendor.add_gpu("0000:17:00.0");
  kernel.remove("sys/devices/pci0000:00/0000:17:00.4/nvidia");
  EXPECT_THAT(addresses_of(read().gpus.at(0)), ElementsAre("0000:17:00.5"));
}

TEST_F(VgpuScan, SaysThatAFunctionCannotBeRead) {
  add_sriov_gpu(2);
  vendor.add_gpu("0000:17:00.0");
  kernel.file("sys/devices/pci0000:00/0000:17:00.5/nvidia/current_vgpu_type", "?\n");
  EXPECT_EQ(read().gpus.at(0).obstacle,
            "its vGPU types cannot be read: "
            "/sys/bus/pci/devices/0000:17:00.5/nvidia/current_vgpu_type: '?' is not a number");
}

TEST_F(VgpuScan, ReadsOneGpuAgain) {
  add_sriov_gpu(2);
  add_sriov_gpu(1, "0000:65:00.0");
  mdev.add_vf_parents("0000:17:00.0");
  vendor.add_gpu("0000:65:00.0");
  const VgpuInventory before = read();
  mdev.add_device("0000:17:00.5", "nvidia-1153", kA);
  vendor.set("0000:65:00.4", "1152");
  const vfio::Inventory inventory = vfio::scan(kernel).value();
  const VgpuInventory now = read();
  for (const std::size_t gpu : {0U, 1U}) {
    const VgpuGpu again = scan_gpu_again(kernel, inventory, before.gpus[gpu]).value();
    EXPECT_EQ(again.index, gpu);
    EXPECT_EQ(again.framework, now.gpus[gpu].framework);
    EXPECT_EQ(names_of(again), names_of(now.gpus[gpu]));
    EXPECT_EQ(addresses_of(again), addresses_of(now.gpus[gpu]));
    EXPECT_THAT(names_of(again), testing::SizeIs(1));
  }
  const auto gone = scan_gpu_again(kernel, vfio::Inventory{}, before.gpus[0]);
  ASSERT_FALSE(gone);
  EXPECT_EQ(gone.error().code, Errc::not_found);
}

TEST_F(VgpuScan, GoesByTheVirtualFunctionsWhereTheGpuKeepsItsDirectory) {
  add_sriov_gpu();
  mdev.add_parent("0000:17:00.0", {{"nvidia-1153", "NVIDIA L40S-12Q", 12288, 0}});
  mdev.add_parent("0000:17:00.4", {{"nvidia-1153", "NVIDIA L40S-12Q", 12288, 1}});
  EXPECT_EQ(read().gpus.at(0).framework, &mediated_on_functions());
}

// nvidia-vgpud lists a GPU's types once it has started. Until then nothing on the host tells a T4 from a
// board whose virtual functions are off.
TEST_F(VgpuScan, ABoardThatIsKnownToHaveNoFunctionsIsAskedForNone) {
  for (const char* gpu : {"0000:05:00.0", "0000:06:00.0"}) {
    const bool t4 = std::string_view(gpu).starts_with("0000:05");
    kernel.add_function({.address = gpu,
                         .ids = t4 ? "10de:1eb8" : "10de:26b9",
                         .class_code = 0x030200,
                         .driver = "nvidia",
                         .totalvfs = 16});
    kernel.file(host_driver_sign(at(gpu)), "0\n");
  }
  const vfio::AcceleratorRules rules{.vendors = {0x10de},
                                     .classes = {vfio::PciClass::display_3d},
                                     .never_has_virtual_functions = [](const vfio::PciFunction& function) {
                                       return function.device == 0x1eb8;
                                     }};
  const vfio::Inventory inventory = vfio::scan(kernel).value();
  const VgpuInventory found = scan_vgpus(kernel, inventory, rules).value();
  EXPECT_FALSE(found.gpus.at(0).may_get_virtual_functions());
  EXPECT_TRUE(found.gpus[0].awaits_types());
  EXPECT_EQ(found.gpus[0].obstacle, "its driver nvidia offers no vGPU types until nvidia-vgpud lists them");
  EXPECT_FALSE(scan_gpu_again(kernel, inventory, found.gpus[0]).value().may_get_virtual_functions());
  EXPECT_TRUE(found.gpus.at(1).may_get_virtual_functions());
  EXPECT_FALSE(found.gpus[1].awaits_types());
  EXPECT_TRUE(scan_gpu_again(kernel, inventory, found.gpus[1]).value().may_get_virtual_functions());
}

TEST_F(VgpuScan, SaysWhyAGpuCarriesNoVgpus) {
  kernel.add_function(
      {.address = "0000:01:00.0", .group = 1, .driver = "vfio-pci", .driver_override = "vfio-pci"});
  kernel.add_function({.address = "0000:02:00.0", .ids = "10de:2330"});
  kernel.add_function({.address = "0000:03:00.0", .driver = "nvidia"});
  kernel.add_function({.address = "0000:04:00.0", .driver = "nvidia", .totalvfs = 16});
  kernel.add_function({.address = "0000:05:00.0", .driver = "nvidia"});
  kernel.remove("sys/devices/pci0000:00/0000:05:00.0/config");
  add_sriov_gpu(2, "0000:06:00.0");
  kernel.add_function({.address = "0000:07:00.0", .driver = "nvidia", .totalvfs = 16});
  kernel.add_function({.address = "0000:08:00.0", .driver = "nvidia"});
  for (const char* divided : {"0000:07:00.0", "0000:08:00.0"})
    kernel.file(host_driver_sign(vfio::PciAddress::parse(divided).value()), "0\n");
  std::vector<std::string> obstacles;
  for (const VgpuGpu& gpu : read().gpus) {
    EXPECT_EQ(gpu.framework, &no_framework());
    EXPECT_EQ(gpu.may_get_virtual_functions(), gpu.address().text() == "0000:07:00.0") << gpu.label();
    obstacles.push_back(gpu.obstacle);
  }
  EXPECT_THAT(
      obstacles,
      ElementsAre("bound to vfio-pci for passthrough", "no driver is bound to it",
                  "its driver nvidia offers no vGPU types and is no vGPU host driver",
                  "its driver nvidia offers no vGPU types and is no vGPU host driver",
                  "cannot be read: open /sys/bus/pci/devices/0000:05:00.0/config: No such file or directory",
                  "its driver nvidia offers no vGPU types on its 2 virtual functions",
                  "its driver nvidia offers no vGPU types; none of its 16 virtual functions is enabled",
                  "its driver nvidia offers no vGPU types"));
}

TEST_F(VgpuScan, SaysThatTypesCannotBeRead) {
  add_t4("0000:05:00.0");
  kernel.file("sys/devices/pci0000:00/0000:05:00.0/mdev_supported_types/nvidia-222/available_instances",
              "\n");
  EXPECT_THAT(read().gpus.at(0).obstacle, testing::StartsWith("its vGPU types cannot be read: "));
}

TEST_F(VgpuScan, NotesParentsThatAreNoAccelerators) {
  kernel.add_function({.address = "0000:00:02.0", .ids = "8086:3e92", .driver = "i915"});
  mdev.add_parent("0000:00:02.0", {{"i915-GVTg_V5_4", "i915-GVTg_V5_4", 512, 2}});
  mdev.add_device("0000:00:02.0", "i915-GVTg_V5_4", kA);
  const VgpuInventory seen = read();
  EXPECT_THAT(seen.gpus, IsEmpty());
  EXPECT_THAT(seen.notes,
              ElementsAre("0000:00:02.0 carries mediated devices and is no accelerator: passed over"));
}

TEST_F(VgpuScan, KeepsForVgpusWhatOffersHasOrCarriesThem) {
  add_t4("0000:05:00.0");
  add_t4("0000:06:00.0");
  mdev.add_device("0000:06:00.0", "nvidia-233", kA);
  add_sriov_gpu();
  kernel.add_function({.address = "0000:65:00.0", .driver = "nvidia", .totalvfs = 16});
  kernel.add_function({.address = "0000:66:00.0",
                       .group = 66,
                       .driver = "vfio-pci",
                       .driver_override = "vfio-pci",
                       .totalvfs = 16});
  kernel.file("sys/devices/pci0000:00/0000:66:00.0/sriov_numvfs", "1\n");  // made after the bind
  EXPECT_THAT(kept_for_vgpus(read()),
              ElementsAre(std::pair(at("0000:05:00.0"), "its driver offers vGPU types"),
                          std::pair(at("0000:06:00.0"), "it carries 1 vGPU"),
                          std::pair(at("0000:17:00.0"), "it has 1 virtual function")));
}

TEST_F(VgpuScan, CountsWhatCannotBeReadAmongTheCarriers) {
  add_t4("0000:05:00.0");
  mdev.add_device("0000:05:00.0", "nvidia-232", kA);
  EXPECT_THAT(carriers_of_vgpus(read(), [](const VgpuDevice& device) { return device.id.text == kA; }),
              ElementsAre(std::pair(at("0000:05:00.0"),
                                    "carries 1 vGPU; `ferry vgpu delete --device 0000:05:00.0` removes it")));
  EXPECT_THAT(carriers_of_vgpus(read()),
              ElementsAre(std::pair(
                  at("0000:05:00.0"),
                  "carries 1 vGPU; `ferry vgpu delete --device 0000:05:00.0 --foreign` removes it")));
  kernel.file("sys/class/vfio/100/dev", "odd\n");
  EXPECT_THAT(carriers_of_vgpus(read()).at(at("0000:05:00.0")),
              testing::StartsWith("may carry vGPUs that cannot be read: /sys/class/vfio/100/dev"));
}

TEST_F(VgpuScan, NamesNoRemovalThatAnUnreadableVgpuKeepsBack) {
  add_t4("0000:05:00.0");
  mdev.add_device("0000:05:00.0", "nvidia-232", kA);
  mdev.add_device("0000:05:00.0", "nvidia-232", "11111111-3b1d-4f0e-9a57-2f6f5f1f7a10");
  kernel.file("sys/class/vfio/101/dev", "odd\n");
  EXPECT_THAT(
      carriers_of_vgpus(read()).at(at("0000:05:00.0")),
      testing::StartsWith("carries 1 vGPU, and Ferry removes no vGPU of it while some cannot be read: "
                          "/sys/class/vfio/101/dev"));
}

TEST_F(VgpuScan, CountsAGpuAmongTheCarriersWhoseVirtualFunctionCannotBeRead) {
  add_sriov_gpu(2);
  vendor.add_gpu("0000:17:00.0");
  kernel.file("sys/devices/pci0000:00/0000:17:00.5/nvidia/current_vgpu_type", "?\n");
  EXPECT_THAT(carriers_of_vgpus(read()),
              ElementsAre(testing::Key(at("0000:17:00.0")), testing::Key(at("0000:17:00.5"))));
}

// One that is not ours is enough: what is left of them keeps the GPU where it is.
TEST_F(VgpuScan, NamesWhatTakesVgpusOfOthersAwayToo) {
  add_t4("0000:05:00.0");
  constexpr const char* kB = "11111111-3b1d-4f0e-9a57-2f6f5f1f7a10";
  mdev.add_device("0000:05:00.0", "nvidia-232", kA);
  mdev.add_device("0000:05:00.0", "nvidia-232", kB);
  const VgpuGpu gpu = read().gpus.at(0);
  const auto is_a = [](const VgpuDevice& device) { return device.id.text == kA; };
  EXPECT_EQ(removal_command(gpu, is_a), "ferry vgpu delete --device 0000:05:00.0 --foreign");
  EXPECT_EQ(removal_command(gpu, [](const VgpuDevice&) { return true; }),
            "ferry vgpu delete --device 0000:05:00.0");
}

TEST_F(VgpuScan, ReadsOfAVgpuWhatShowsThatAWriteHeld) {
  add_t4("0000:05:00.0");
  mdev.add_device("0000:05:00.0", "nvidia-232", kA);
  VgpuGpu gpu = read().gpus.at(0);
  const VgpuDevice before = gpu.devices.at(0);
  constexpr const char* kB = "11111111-3b1d-4f0e-9a57-2f6f5f1f7a10";
  mdev.add_device("0000:05:00.0", "nvidia-232", kB);
  const vfio::Inventory inventory = vfio::scan(kernel).value();
  scan_devices_again(kernel, inventory, VgpuFacts::identity, gpu);
  ASSERT_THAT(gpu.devices, testing::SizeIs(2));
  EXPECT_EQ(gpu.devices[0].id.text, kB);
  EXPECT_EQ(gpu.devices[0].type_id, "nvidia-232");
  EXPECT_EQ(gpu.devices[0].iommu_group, 101U);
  EXPECT_THAT(gpu.devices[0].nodes, testing::IsEmpty()) << "who could have it is not looked for";
  EXPECT_EQ(gpu.devices[1].nodes.size(), before.nodes.size()) << "of the other one it is known";
  EXPECT_EQ(gpu.devices[1].driver, before.driver);
  scan_devices_again(kernel, inventory, VgpuFacts::all, gpu);
  EXPECT_EQ(gpu.devices[0].nodes.size(), before.nodes.size());
}

TEST_F(VgpuScan, AsksAboutAVgpuByItsNodes) {
  add_t4("0000:05:00.0");
  mdev.add_device("0000:05:00.0", "nvidia-232", kA);
  const vfio::UseQuestion question = use_question(read().gpus.at(0).devices.at(0));
  EXPECT_EQ(question.device, kA);
  std::vector<std::string> names;
  names.reserve(question.nodes.size());
  for (const vfio::DeviceNode& node : question.nodes) names.push_back(node.name);
  EXPECT_THAT(names, ElementsAre("/dev/vfio/100", "/dev/vfio/devices/vfio100"));
}

}  // namespace
}  // namespace ferry::mdev
