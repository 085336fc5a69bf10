// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "hostfs/stuck_writes.h"
#include "tests/support/must.h"
#include "tests/vfio/machines.h"
#include "vfio/bind/driver_choice.h"

namespace ferry::vfio {
namespace {

using test::at;
using test::FakeKernel;
using testing::HasSubstr;

class DriverOverride : public testing::Test {
 protected:
  DriverOverride() {
    kernel_.add_function({.address = "0000:01:00.0", .group = 1, .driver_override = "vfio-pci"});
    kernel_.add_function({.address = "0000:02:00.0", .group = 2, .driver_override = "pci-stub"});
    kernel_.add_function({.address = "0000:03:00.0", .group = 3});
  }
  Inventory read(const std::vector<PciAddress>& functions) {
    auto inventory = test::must(scan(kernel_));
    read_overrides(kernel_, kernel_, functions, inventory);
    return inventory;
  }
  FakeKernel kernel_;
  std::vector<PciAddress> all_ = {at("0000:01:00.0"), at("0000:02:00.0"), at("0000:03:00.0")};
};

TEST_F(DriverOverride, IsReadOfTheNamedFunctionsAlone) {
  const Inventory seen = read({at("0000:02:00.0"), at("0000:03:00.0"), at("0000:09:00.0")});
  EXPECT_EQ(seen.find(at("0000:01:00.0"))->driver_override, std::nullopt);
  EXPECT_EQ(seen.find(at("0000:02:00.0"))->driver_override, "pci-stub");
  EXPECT_EQ(seen.find(at("0000:03:00.0"))->driver_override, std::nullopt);
}

TEST_F(DriverOverride, OfADeviceWhoseDriverHangsIsAProblemOfThatDeviceAlone) {
  kernel_.hang_device("0000:01:00.0");
  const Inventory seen = read(all_);
  const Error problem = seen.find(at("0000:01:00.0"))->problem.value_or(Error{});
  EXPECT_EQ(problem.code, Errc::stuck);
  EXPECT_THAT(problem.message, HasSubstr("0000:01:00.0/driver_override"));
  EXPECT_EQ(seen.find(at("0000:02:00.0"))->driver_override, "pci-stub");
}

TEST_F(DriverOverride, IsNotAskedForWhereAnEarlierWriteHangs) {
  kernel_.hang_device("0000:01:00.0");
  kernel_.file("proc/77/stat", "77 (exe) D 1 77 77 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 4466 0\n");
  test::must(record_stuck_write(kernel_, 77, "write /sys/bus/pci/drivers/nouveau/unbind", "0000:01:00.0"));
  EXPECT_FALSE(read(all_).find(at("0000:01:00.0"))->problem);
}

TEST_F(DriverOverride, IsNotAskedForWhileARecordOfStuckWritesCannotBeRead) {
  kernel_.file("run/ferry/stuck-writes/700.json/in-its-place", "");
  const Inventory seen = read(all_);
  for (const PciAddress& address : all_) {
    EXPECT_TRUE(seen.find(address)->override_unread);
    EXPECT_THAT(seen.find(address)->problem.value_or(Error{}).message, HasSubstr("700.json"));
    EXPECT_EQ(seen.find(address)->driver_override, std::nullopt);
  }
}

TEST_F(DriverOverride, ThatCannotBeReadIsAProblemAndOneThatIsNotThereIsNone) {
  kernel_.remove("sys/devices/pci0000:00/0000:01:00.0/driver_override");
  kernel_.remove("sys/devices/pci0000:00/0000:02:00.0/driver_override");
  kernel_.directory("sys/devices/pci0000:00/0000:02:00.0/driver_override");
  const Inventory seen = read(all_);
  EXPECT_FALSE(seen.find(at("0000:01:00.0"))->problem);
  EXPECT_TRUE(seen.find(at("0000:02:00.0"))->problem);
}

}  // namespace
}  // namespace ferry::vfio
