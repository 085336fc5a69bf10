// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "tests/support/fake_kernel.h"
#include "tests/support/must.h"
#include "virt/selftest.h"

namespace ferry::virt {
namespace {

using test::FakeKernel;
using test::must;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* kUuid = "5b6c0f0e-3b1d-4f0e-9a57-2f6f5f1f7a10";

class HostDevicesTest : public testing::Test {
 protected:
  HostDevicesTest() {
    kernel_.add_driver({.name = "vfio-pci", .vfio = true});
    kernel_.add_driver({.name = "nouveau", .ids = {"10de:2204"}});
    kernel_.add_function({.address = "0000:01:00.0",
                          .ids = "10de:2684",
                          .subsystem_ids = "1043:16f3",
                          .group = 9,
                          .driver = "vfio-pci",
                          .driver_override = "vfio-pci"});
    kernel_.add_function({.address = "0000:02:00.0", .ids = "10de:2204", .group = 10, .driver = "nouveau"});
    kernel_.add_function({.address = "0000:03:00.0", .ids = "10de:1eb8", .group = 11});
    const std::string device = std::string("sys/devices/pci0000:00/0000:03:00.0/") + kUuid;
    kernel_.file(device + "/remove", "");
    kernel_.file("sys/devices/pci0000:00/0000:03:00.0/mdev_supported_types/nvidia-230/name", "GRID T4-1Q\n");
    kernel_.link(device + "/mdev_type", "../mdev_supported_types/nvidia-230");
    kernel_.link(std::string("sys/bus/mdev/devices/") + kUuid,
                 std::string("../../../devices/pci0000:00/0000:03:00.0/") + kUuid);
  }
  FakeKernel kernel_;
};

TEST_F(HostDevicesTest, ExpectsAFunctionWithAllItsOwnIds) {
  const HostDevices found = must(find_host_devices(kernel_, {"0000:01:00.0"}));
  EXPECT_THAT(found.pci, ElementsAre(must(vfio::PciAddress::parse("0000:01:00.0"))));
  EXPECT_THAT(found.mdev, IsEmpty());
  ASSERT_EQ(found.expected.size(), 1U);
  EXPECT_EQ(found.expected[0].device, "0000:01:00.0");
  EXPECT_TRUE(found.expected[0].exact);
  EXPECT_EQ(
      found.expected[0].ids,
      (PciIds{.vendor = 0x10de, .device = 0x2684, .subsystem_vendor = 0x1043, .subsystem_device = 0x16f3}));
}

TEST_F(HostDevicesTest, ExpectsAMediatedDeviceToBeOfItsParentsVendor) {
  const HostDevices found = must(find_host_devices(kernel_, {"5B6C0F0E-3b1d-4f0e-9a57-2f6f5f1f7a10"}));
  EXPECT_THAT(found.pci, IsEmpty());
  EXPECT_THAT(found.mdev, ElementsAre(kUuid));
  ASSERT_EQ(found.expected.size(), 1U);
  EXPECT_EQ(found.expected[0].device, kUuid);
  EXPECT_FALSE(found.expected[0].exact);
  EXPECT_EQ(found.expected[0].ids.vendor, 0x10de);
  EXPECT_EQ(found.expected[0].ids.device, 0x1eb8);
}

struct Row {
  const char* name;
  std::vector<std::string> devices;
  Errc code;
  const char* message;
  const char* hint;
};
void PrintTo(const Row& row, std::ostream* out) {
  *out << row.name;
}
class WrongDevices : public HostDevicesTest, public testing::WithParamInterface<Row> {};

TEST_P(WrongDevices, AreRefusedBeforeAnythingIsStarted) {
  const auto found = find_host_devices(kernel_, GetParam().devices);
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code, GetParam().code);
  EXPECT_THAT(found.error().message, HasSubstr(GetParam().message));
  EXPECT_THAT(found.error().hint, HasSubstr(GetParam().hint));
}

INSTANTIATE_TEST_SUITE_P(
    Rows, WrongDevices,
    testing::Values(
        Row{"None", {}, Errc::usage, "no device was named", "--device"},
        Row{"Word", {"gpu"}, Errc::usage, "'gpu' is neither a PCI address nor the UUID", "0000:3b:00.0"},
        Row{"EmptyWord", {""}, Errc::usage, "'' is neither", "0000:3b:00.0"},
        Row{"ShortAddress", {"01:00.0"}, Errc::usage, "'01:00.0' is neither", "0000:01:00.0"},
        Row{"ShortUuid", {"5b6c0f0e-3b1d-4f0e-9a57"}, Errc::usage, "is neither", ""},
        Row{"Twice", {"0000:01:00.0", "0000:01:00.0"}, Errc::usage, "0000:01:00.0 is named twice", "once"},
        Row{"NoSuchFunction", {"0000:09:00.0"}, Errc::not_found, "0000:09:00.0", ""},
        Row{"NoSuchMediatedDevice",
            {"00000000-0000-4000-8000-000000000000"},
            Errc::not_found,
            "no mediated device 00000000",
            "ferry status"},
        Row{"OnAHostDriver",
            {"0000:02:00.0"},
            Errc::refused,
            "0000:02:00.0 is on driver nouveau",
            "ferry vfio bind --device 0000:02:00.0"},
        Row{"OnNoDriver",
            {"0000:01:00.0", "0000:03:00.0"},
            Errc::refused,
            "0000:03:00.0 is on no driver",
            "ferry vfio bind"}),
    [](const auto& row) { return row.param.name; });

}  // namespace
}  // namespace ferry::virt
