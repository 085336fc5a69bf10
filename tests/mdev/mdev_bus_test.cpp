// SPDX-License-Identifier: Apache-2.0
#include "mdev/mdev_bus.h"

#include <gmock/gmock.h>

#include "tests/support/fake_mdev.h"

namespace ferry::mdev {
namespace {

using test::FakeKernel;
using test::FakeMdev;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr const char* kA = "5b6c0f0e-3b1d-4f0e-9a57-2f6f5f1f7a10";
constexpr const char* kB = "5b6c0f0e-3b1d-4f0e-9a57-2f6f5f1f7a11";
const std::string kTypes = "sys/devices/pci0000:00/0000:05:00.0/mdev_supported_types/";
const std::string kDevice = std::string("sys/devices/pci0000:00/0000:05:00.0/") + kA;

class MdevBusRead : public testing::Test {
 protected:
  MdevBusRead() {
    kernel.add_driver({.name = "nvidia", .ids = {"10de:1eb8"}});
    kernel.add_function(
        {.address = "0000:05:00.0", .ids = "10de:1eb8", .class_code = 0x030200, .driver = "nvidia"});
    mdev.add_parent("0000:05:00.0");
  }
  MdevBus read() const { return read_mdev_bus(kernel, StuckGpus()).value(); }
  VgpuParent parent() const { return read().parents.at(vfio::PciAddress::parse("0000:05:00.0").value()); }
  VgpuType type(const std::string& id) const {
    for (const VgpuType& type : parent().types) {
      if (type.id == id) return type;
    }
    ADD_FAILURE() << "no type " << id;
    return {};
  }

  FakeKernel kernel;
  FakeMdev mdev{kernel};
};

TEST(MdevBus, IsEmptyOnAHostWithoutTheFramework) {
  const FakeKernel kernel;
  const auto bus = read_mdev_bus(kernel, StuckGpus());
  ASSERT_TRUE(bus);
  EXPECT_THAT(bus->parents, IsEmpty());
  EXPECT_THAT(bus->devices, IsEmpty());
  EXPECT_THAT(bus->notes, IsEmpty());
}

TEST_F(MdevBusRead, GivesTheWholeOfAType) {
  const VgpuType t4 = type("nvidia-232");
  EXPECT_EQ(t4.name, "GRID T4-4Q");
  EXPECT_EQ(t4.short_name, "T4-4Q");
  EXPECT_EQ(t4.available, 4U);
  EXPECT_EQ(t4.max_instances, 4U);
  EXPECT_EQ(t4.framebuffer_mib, 4096U);
}

TEST_F(MdevBusRead, OrdersTypesByTheirNumbers) {
  kernel.file(kTypes + "nvidia-1153/available_instances", "1\n");
  std::vector<std::string> ids;
  for (const VgpuType& type : parent().types) ids.push_back(type.id);
  EXPECT_EQ(ids.front(), "nvidia-222");
  EXPECT_EQ(ids.back(), "nvidia-1153");
}

TEST_F(MdevBusRead, KeepsOnlyTheLastWordOfALongName) {
  kernel.file(kTypes + "nvidia-232/name", "  NVIDIA RTX Pro 6000 Blackwell DC-24Q \n");
  EXPECT_EQ(type("nvidia-232").name, "NVIDIA RTX Pro 6000 Blackwell DC-24Q");
  EXPECT_EQ(type("nvidia-232").short_name, "DC-24Q");
}

TEST_F(MdevBusRead, NamesATypeWithoutANameByItsId) {
  kernel.remove(kTypes + "nvidia-232/name");
  EXPECT_EQ(type("nvidia-232").name, "nvidia-232");
  kernel.file(kTypes + "nvidia-232/name", " \n");
  EXPECT_EQ(type("nvidia-232").name, "nvidia-232");
}

TEST_F(MdevBusRead, LeavesOutWhatADescriptionDoesNotSay) {
  kernel.file(kTypes + "nvidia-232/description", "low_gm_size: 128MB, fence: 4\n");
  EXPECT_EQ(type("nvidia-232").max_instances, std::nullopt);
  EXPECT_EQ(type("nvidia-232").framebuffer_mib, std::nullopt);
  kernel.remove(kTypes + "nvidia-232/description");
  EXPECT_EQ(type("nvidia-232").max_instances, std::nullopt);
  kernel.file(kTypes + "nvidia-232/description", "framebuffer=4G,max_instance=3,,=,x\n");
  EXPECT_EQ(type("nvidia-232").framebuffer_mib, std::nullopt);
  EXPECT_EQ(type("nvidia-232").max_instances, 3U);
}

TEST_F(MdevBusRead, SaysWhichCountIsNoNumberAndKeepsTheOtherTypes) {
  kernel.file(kTypes + "nvidia-232/available_instances", "many\n");
  const VgpuParent gpu = parent();
  ASSERT_TRUE(gpu.problem);
  const Error problem = gpu.problem.value_or(Error{});
  EXPECT_EQ(problem.code, Errc::malformed_host);
  EXPECT_EQ(
      problem.message,
      "/sys/bus/pci/devices/0000:05:00.0/mdev_supported_types/nvidia-232/available_instances: 'many' is "
      "not a number");
  EXPECT_EQ(gpu.types.size(), test::t4_types().size() - 1);
}

TEST_F(MdevBusRead, LeavesOutATypeThatVanishes) {
  kernel.remove(kTypes + "nvidia-232/available_instances");
  EXPECT_FALSE(parent().problem);
  EXPECT_EQ(parent().types.size(), test::t4_types().size() - 1);
}

TEST_F(MdevBusRead, PassesOverAParentThatIsNoPciFunction) {
  kernel.link("sys/class/mdev_bus/mtty", "../../devices/virtual/mtty/mtty");
  kernel.link(std::string("sys/bus/mdev/devices/") + kB,
              std::string("../../../devices/virtual/mtty/mtty/") + kB);
  mdev.add_device("0000:05:00.0", "nvidia-232", kA);
  const MdevBus bus = read();
  EXPECT_THAT(bus.notes,
              ElementsAre("mdev parent mtty is no PCI function: passed over",
                          std::string("mediated device ") + kB + " is on no PCI function: passed over"));
  ASSERT_EQ(bus.devices.size(), 1U);
  EXPECT_EQ(bus.devices[0].id.text, kA);
  EXPECT_EQ(bus.parents.size(), 1U);
}

TEST_F(MdevBusRead, GivesTheWholeOfADevice) {
  mdev.add_device("0000:05:00.0", "nvidia-232", kA);
  const VgpuDevice device = read().devices.at(0);
  EXPECT_EQ(device.id.text, kA);
  EXPECT_EQ(device.parent.text(), "0000:05:00.0");
  EXPECT_EQ(device.type_id, "nvidia-232");
  EXPECT_EQ(device.type_name, "GRID T4-4Q");
  EXPECT_EQ(device.short_name, "T4-4Q");
  EXPECT_EQ(device.driver, "nvidia-vgpu-vfio");
  EXPECT_EQ(device.iommu_group, 100U);
  ASSERT_EQ(device.nodes.size(), 2U);
  EXPECT_EQ(device.nodes[0].name, "/dev/vfio/100");
  EXPECT_EQ(device.nodes[0].number, (DeviceNumber{.major = 244, .minor = 100}));
  EXPECT_EQ(device.nodes[1].name, "/dev/vfio/devices/vfio100");
  EXPECT_EQ(device.nodes[1].number, (DeviceNumber{.major = 511, .minor = 100}));
}

TEST_F(MdevBusRead, TakesADeviceThatNoDriverHas) {
  mdev.leave_driverless = true;
  mdev.add_device("0000:05:00.0", "nvidia-232", kA);
  const VgpuDevice device = read().devices.at(0);
  EXPECT_EQ(device.driver, std::nullopt);
  EXPECT_EQ(device.iommu_group, std::nullopt);
  EXPECT_THAT(device.nodes, IsEmpty());
}

TEST_F(MdevBusRead, OrdersDevicesByParentThenUuid) {
  kernel.add_function(
      {.address = "0000:04:00.0", .ids = "10de:1eb8", .class_code = 0x030200, .driver = "nvidia"});
  mdev.add_parent("0000:04:00.0");
  mdev.add_device("0000:05:00.0", "nvidia-232", "11111111-3b1d-4f0e-9a57-2f6f5f1f7a10");
  mdev.add_device("0000:04:00.0", "nvidia-232", kB);
  mdev.add_device("0000:04:00.0", "nvidia-232", kA);
  std::vector<std::string> ids;
  for (const VgpuDevice& device : read().devices) ids.push_back(device.id.text);
  EXPECT_THAT(ids, ElementsAre(kA, kB, "11111111-3b1d-4f0e-9a57-2f6f5f1f7a10"));
}

TEST_F(MdevBusRead, LeavesOutADeviceThatVanishes) {
  mdev.add_device("0000:05:00.0", "nvidia-232", kA);
  kernel.remove(kDevice);  // the link of the bus is read first, and goes last
  const MdevBus bus = read();
  EXPECT_THAT(bus.devices, IsEmpty());
  EXPECT_FALSE(bus.parents.begin()->second.problem);
}

// It would pass for one that nobody can have.
TEST_F(MdevBusRead, DoesNotTakeADeviceWithoutItsGroupForOneThatNoDriverHas) {
  mdev.add_device("0000:05:00.0", "nvidia-232", kA);
  kernel.remove(kDevice + "/iommu_group");
  MdevBus bus = read();
  EXPECT_THAT(bus.devices, IsEmpty());
  ASSERT_TRUE(bus.parents.begin()->second.problem);
  EXPECT_THAT(bus.parents.begin()->second.problem->message,
              testing::HasSubstr("driver nvidia-vgpu-vfio has taken it, and it is in no IOMMU group"));
  kernel.link(kDevice + "/iommu_group", "../somewhere/else");
  bus = read();
  ASSERT_TRUE(bus.parents.begin()->second.problem);
  EXPECT_THAT(bus.parents.begin()->second.problem->message, testing::HasSubstr("no group is called else"));
}

// Nobody could say who has it open.
TEST_F(MdevBusRead, MakesANodeWithoutANumberAProblemOfItsParent) {
  for (const char* node : {"sys/class/vfio/100/dev", "vfio-dev/vfio100/dev"}) {
    mdev.add_device("0000:05:00.0", "nvidia-232", kA);
    const std::string path = std::string(node).starts_with("sys/") ? node : kDevice + "/" + node;
    const std::string number = kernel.read_file(path).value();
    kernel.file(path, "odd\n");
    const MdevBus bus = read();
    EXPECT_THAT(bus.devices, IsEmpty());
    ASSERT_TRUE(bus.parents.begin()->second.problem) << path;
    EXPECT_THAT(bus.parents.begin()->second.problem->message, testing::HasSubstr("'odd' is not MAJOR:MINOR"));
    kernel.remove(path);
    EXPECT_THAT(read().devices, testing::SizeIs(1)) << "one that is not there is nobody's";
    kernel.file(path, number);
    mdev.remove_device("0000:05:00.0", kA);
  }
}

TEST_F(MdevBusRead, MakesADeviceThatCannotBeReadAProblemOfItsParent) {
  mdev.add_device("0000:05:00.0", "nvidia-232", kA);
  kernel.remove(kDevice + "/mdev_type");
  kernel.file(kDevice + "/mdev_type", "");  // no link: EINVAL
  EXPECT_EQ(parent().problem.value_or(Error{}).code, std::errc::invalid_argument);
  EXPECT_THAT(read().devices, IsEmpty());
}

}  // namespace
}  // namespace ferry::mdev
