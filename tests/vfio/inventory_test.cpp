// SPDX-License-Identifier: Apache-2.0
#include "vfio/pci/inventory.h"

#include <sys/stat.h>

#include <gmock/gmock.h>

#include "tests/support/must.h"
#include "tests/vfio/machines.h"

namespace ferry::vfio {
namespace {

using test::at;
using test::FakeKernel;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(Inventory, ReadsWhatTheKernelShowsOfAFunction) {
  FakeKernel kernel;
  test::add_host_drivers(kernel);
  test::add_four_function_card(kernel);
  kernel.add_function({.address = "0000:0a:00.0",
                       .ids = "10de:20b5",
                       .subsystem_ids = "10de:1463",
                       .class_code = 0x030200,
                       .group = 7,
                       .numa_node = 1,
                       .totalvfs = 16,
                       .numvfs = 2,
                       .boot_display = true});
  const Inventory inventory = scan(kernel).value();
  const PciFunction& gpu = *inventory.find(at("0000:0a:00.0"));
  EXPECT_EQ(gpu.ids(), "10de:20b5");
  EXPECT_EQ(gpu.subsystem_device, 0x1463);
  EXPECT_EQ(gpu.pci_class(), PciClass::display_3d);
  EXPECT_EQ(gpu.driver, std::nullopt);
  EXPECT_EQ(gpu.driver_override, std::nullopt);
  EXPECT_EQ(gpu.iommu_group, 7U);
  EXPECT_EQ(gpu.numa_node, 1);
  EXPECT_EQ(gpu.sriov_totalvfs, 16U);
  EXPECT_EQ(gpu.sriov_numvfs, 2U);
  EXPECT_TRUE(gpu.boot_display);
  EXPECT_FALSE(gpu.problem);
  const PciFunction& card = *inventory.find(at("0000:65:00.0"));
  EXPECT_EQ(card.driver, "nouveau");
  EXPECT_EQ(card.numa_node, std::nullopt) << "-1 means unknown";
  EXPECT_THAT(card.consumers, ElementsAre(at("0000:65:00.1"), at("0000:65:00.2"), at("0000:65:00.3")));
  EXPECT_TRUE(inventory.find(at("0000:64:00.0"))->is_bridge());
  EXPECT_THAT(inventory.groups.at(41), ElementsAre(at("0000:64:00.0"), at("0000:65:00.0"), at("0000:65:00.1"),
                                                   at("0000:65:00.2"), at("0000:65:00.3")));
  EXPECT_TRUE(inventory.has_iommu());
}

TEST(Inventory, GoesOnAfterAnUnreadableFunction) {
  FakeKernel kernel;
  kernel.add_function({.address = "0000:01:00.0", .group = 1});
  kernel.add_function({.address = "0000:02:00.0", .group = 2});
  kernel.add_function({.address = "0000:03:00.0", .group = 3});
  kernel.file("sys/devices/pci0000:00/0000:01:00.0/vendor", "garbage\n");
  EXPECT_FALSE(scan(kernel).value().find(at("0000:01:00.0"))->problem) << "its modalias says it too";
  kernel.file("sys/devices/pci0000:00/0000:01:00.0/modalias", "garbage\n");
  kernel.file("sys/devices/pci0000:00/0000:03:00.0/config", std::string(64, '\xff'));
  const Inventory inventory = scan(kernel).value();
  EXPECT_THAT(inventory.find(at("0000:01:00.0"))->problem.value_or(Error{}).message,
              HasSubstr("vendor: 'garbage' is not a number"));
  EXPECT_FALSE(inventory.find(at("0000:02:00.0"))->problem);
  EXPECT_THAT(inventory.find(at("0000:03:00.0"))->problem.value_or(Error{}).message,
              HasSubstr("off the bus"));
}

// Its modalias says zero then.
TEST(Inventory, KnowsNoSubsystemFromOneOfZeros) {
  FakeKernel kernel;
  kernel.add_function({.address = "0000:01:00.0", .subsystem_ids = "0000:0000"});
  kernel.add_function({.address = "0000:02:00.0", .subsystem_ids = ""});
  const Inventory inventory = scan(kernel).value();
  EXPECT_EQ(inventory.find(at("0000:01:00.0"))->subsystem_vendor, 0);
  EXPECT_EQ(inventory.find(at("0000:02:00.0"))->subsystem_vendor, std::nullopt);
}

// A read of its config space would wake it.
TEST(Inventory, KnowsAFunctionInD3coldByItsClass) {
  FakeKernel kernel;
  kernel.add_function({.address = "0000:65:00.0", .group = 41});
  kernel.add_function(
      {.address = "0000:64:00.0", .ids = "8086:2030", .class_code = 0x060400, .header_type = 1});
  for (const char* address : {"0000:65:00.0", "0000:64:00.0"}) {
    const std::string folder = std::string("sys/devices/pci0000:00/") + address;
    kernel.remove(folder + "/config");
    kernel.file(folder + "/power_state", "D3cold\n");
  }
  const Inventory inventory = test::must(scan(kernel));
  EXPECT_FALSE(inventory.find(at("0000:65:00.0"))->problem);
  EXPECT_FALSE(inventory.find(at("0000:65:00.0"))->is_bridge());
  EXPECT_TRUE(inventory.find(at("0000:64:00.0"))->is_bridge());
}

TEST(Inventory, KnowsAVirtualFunctionFromADeviceOffTheBus) {
  FakeKernel kernel;
  kernel.add_function({.address = "0000:01:00.0", .group = 1});
  kernel.add_function({.address = "0000:01:00.1", .group = 2});
  std::string config(64, '\0');  // a virtual function's: no vendor, no device, an ordinary header
  config.replace(0, 4, 4, '\xff');
  kernel.file("sys/devices/pci0000:00/0000:01:00.1/config", config);
  EXPECT_FALSE(scan(kernel).value().find(at("0000:01:00.1"))->problem);
}

// The kernel serves these under the lock that a hanging driver keeps; a FIFO keeps its reader just as long.
TEST(Inventory, ReadsNothingUnderTheLockOfADevice) {
  FakeKernel kernel;
  kernel.add_function({.address = "0000:01:00.0", .group = 1, .totalvfs = 8, .numvfs = 4});
  for (const char* attribute : {"driver_override", "sriov_numvfs"}) {
    const auto path = std::filesystem::path("sys/devices/pci0000:00/0000:01:00.0") / attribute;
    kernel.remove(path);
    ASSERT_EQ(::mkfifo((kernel.root() / path).c_str(), 0600), 0);
  }
  for (const Inventory& seen : {scan(kernel).value(), scan_members(kernel, {1}, {}).value()}) {
    const PciFunction& function = *seen.find(at("0000:01:00.0"));
    EXPECT_EQ(function.sriov_numvfs, 4U);
    EXPECT_FALSE(function.problem);
  }
}

TEST(Inventory, LeavesOutWhatVanishedWhileBeingListed) {
  FakeKernel kernel;
  kernel.add_function({.address = "0000:01:00.0", .group = 1});
  kernel.remove("sys/devices/pci0000:00/0000:01:00.0");  // the bus's link dangles
  EXPECT_TRUE(scan(kernel)->functions.empty());
}

TEST(Inventory, KnowsUnsafeNoIommuModeForWhatItIs) {
  FakeKernel kernel;
  kernel.add_function({.address = "0000:01:00.0", .group = 0});
  kernel.file("sys/module/vfio/parameters/enable_unsafe_noiommu_mode", "Y\n");
  EXPECT_FALSE(scan(kernel)->has_iommu());
}

// An IOMMU may serve other devices alone, and a device tree may give one to some PCI hosts.
TEST(Inventory, SaysWhatKeepsFunctionsWithoutAGroup) {
  const std::string devices_tree = "sys/firmware/devicetree/base";
  for (const bool device_tree : {false, true}) {
    for (const bool other_groups : {false, true}) {
      FakeKernel kernel;
      kernel.directory(device_tree ? devices_tree : "sys/firmware/acpi/tables");
      kernel.add_function({.address = "0000:17:00.0"});
      if (other_groups) kernel.directory("sys/kernel/iommu_groups/9/devices");
      Inventory inventory = test::must(scan(kernel));
      const auto without = require_iommu(inventory);
      ASSERT_FALSE(without);
      EXPECT_EQ(without.error().message, other_groups ? "no PCI function of this host is in an IOMMU group"
                                                      : "this host has no active IOMMU: "
                                                        "/sys/kernel/iommu_groups is empty");
      EXPECT_EQ(without.error().hint.starts_with("the device tree must name an SMMU"), device_tree);
      kernel.add_function({.address = "0000:18:00.0", .group = 9});
      inventory = test::must(scan(kernel));
      EXPECT_TRUE(require_iommu(inventory));
      EXPECT_EQ(!inventory.iommu_cure.empty(), device_tree) << "for the first one";
    }
  }
}

TEST(Inventory, FailsWhereThereIsNoPciBus) {
  const test::ScratchDirectory empty;
  const auto inventory = scan(HostFs(empty.path()));
  ASSERT_FALSE(inventory);
  EXPECT_THAT(inventory.error().message, HasSubstr("scan PCI functions: open /sys/bus/pci/devices"));
  EXPECT_THAT(inventory.error().hint, HasSubstr("is " + empty.path().string() + " the root of a host?"));
}

TEST(Inventory, OrdersFiveDigitDomainsLast) {
  FakeKernel kernel;
  kernel.add_function({.address = "10000:01:00.0", .group = 1});
  kernel.add_function({.address = "2000:01:00.0", .group = 1});
  EXPECT_THAT(scan(kernel)->groups.at(1), ElementsAre(at("2000:01:00.0"), at("10000:01:00.0")));
}

/// A member of a group, and whether its driver keeps the kernel from giving the group to a VM.
struct Viability {
  std::string name;
  std::string driver;                     ///< of the function; empty: none
  std::optional<std::string> of_vf = {};  ///< it has a virtual function, on this driver; empty: none
  bool vfio_device = false;               ///< which is one of vfio's
  bool blocks = false;
};
void PrintTo(const Viability& row, std::ostream* out) {
  *out << row.name;
}

class ViabilityRule : public testing::TestWithParam<Viability> {};

TEST_P(ViabilityRule, IsTheKernels) {
  const Viability& row = GetParam();
  FakeKernel kernel;
  kernel.add_driver({.name = "vfio-pci", .vfio = true});
  for (const char* name : {"nvidia", "pci-stub", "pcieport", "shpchp", "other"})
    kernel.add_driver({.name = name});
  const std::string devices = "sys/devices/pci0000:00/";
  const auto add = [&](const std::string& address, const std::string& driver) {
    kernel.add_function({.address = address, .group = 5, .totalvfs = 4});
    if (!driver.empty()) kernel.link(devices + address + "/driver", "../../../bus/pci/drivers/" + driver);
  };
  add("0000:17:00.0", row.driver);
  if (row.of_vf) {
    add("0000:17:00.4", *row.of_vf);
    kernel.link(devices + "0000:17:00.0/virtfn0", "../0000:17:00.4");
    if (row.vfio_device) kernel.directory(devices + "0000:17:00.4/vfio-dev/vfio0");
  }
  const Inventory whole = scan(kernel).value();
  EXPECT_EQ(blocks_viability(*whole.find(at("0000:17:00.0"))), row.blocks);
  // A scan of the function alone, and one after a bind, say the same.
  EXPECT_EQ(blocks_viability(read_function(kernel, at("0000:17:00.0")).value()), row.blocks);
  const Inventory again = scan_members_again(kernel, {5}, {}, whole).value();
  EXPECT_EQ(blocks_viability(*again.find(at("0000:17:00.0"))), row.blocks);
}

INSTANTIATE_TEST_SUITE_P(
    Table, ViabilityRule,
    testing::Values(
        Viability{.name = "NoDriver", .driver = ""}, Viability{.name = "Vfio", .driver = "vfio-pci"},
        Viability{.name = "Stub", .driver = "pci-stub"}, Viability{.name = "Port", .driver = "pcieport"},
        Viability{.name = "HotplugPort", .driver = "shpchp", .blocks = true},
        Viability{.name = "Another", .driver = "other", .blocks = true},
        Viability{.name = "PlainNvidia", .driver = "nvidia", .blocks = true},
        Viability{.name = "NvidiaForVgpuHosts", .driver = "nvidia", .of_vf = "nvidia", .vfio_device = true},
        Viability{
            .name = "NvidiaWithMediatedDevicesAlone", .driver = "nvidia", .of_vf = "nvidia", .blocks = true},
        Viability{.name = "ItsFunctionsAreOnVfioPci",
                  .driver = "nvidia",
                  .of_vf = "vfio-pci",
                  .vfio_device = true,
                  .blocks = true},
        Viability{.name = "ItsFunctionsHaveNoDriver", .driver = "nvidia", .of_vf = "", .blocks = true}),
    [](const auto& row) { return row.param.name; });

TEST(AcceleratorRules, LeaveOutVirtualFunctionsBridgesAndOtherClasses) {
  FakeKernel kernel;
  kernel.add_function({.address = "0000:01:00.0", .group = 1});
  kernel.add_function({.address = "0000:01:00.4", .group = 2, .physical_function = "0000:01:00.0"});
  kernel.add_function({.address = "0000:01:00.1", .class_code = 0x040300, .group = 1});
  kernel.add_function({.address = "0000:02:00.0", .ids = "1a03:2000", .group = 3});
  const Inventory inventory = scan(kernel).value();
  std::vector<std::string> found;
  for (const auto& [address, function] : inventory.functions) {
    if (test::gpu_rules().match(function)) found.push_back(address.text());
  }
  EXPECT_THAT(found, ElementsAre("0000:01:00.0"));
}

}  // namespace
}  // namespace ferry::vfio
