// SPDX-License-Identifier: Apache-2.0
#include <ostream>

#include <gtest/gtest.h>

#include "vgpu-dm/profile/profile.h"

namespace ferry::vgpu {
namespace {

struct Good {
  const char* text;
  const char* canonical;
};
void PrintTo(const Good& row, std::ostream* out) {
  *out << row.text;
}

class GoodFilter : public testing::TestWithParam<Good> {};

TEST_P(GoodFilter, IsReadAsItsNumber) {
  const auto filter = DeviceFilter::parse(GetParam().text);
  ASSERT_TRUE(filter) << filter.error().message;
  EXPECT_EQ(filter->text(), GetParam().canonical);
}

INSTANTIATE_TEST_SUITE_P(
    Table, GoodFilter,
    testing::Values(Good{"0x26B910DE", "0x26B910DE"}, Good{"0x26b910de", "0x26B910DE"},
                    Good{"0X26B910DE", "0x26B910DE"}, Good{"0x26B9_10DE", "0x26B910DE"},
                    Good{"0x_26B910DE", "0x26B910DE"}, Good{"649662686", "0x26B910DE"},
                    Good{"0o4656210336", "0x26B910DE"}, Good{"04656210336", "0x26B910DE"},
                    Good{"0b100110101110010001000011011110", "0x26B910DE"}, Good{"0x10DE", "0x000010DE"},
                    Good{"0", "0x00000000"}, Good{"0x26B910DE:0x185110DE", "0x26B910DE:0x185110DE"},
                    Good{"0x26B910DE:0", "0x26B910DE:0x00000000"}, Good{"4294967295", "0xFFFFFFFF"}));

struct Bad {
  const char* text;
  const char* hint;
};
void PrintTo(const Bad& row, std::ostream* out) {
  *out << row.text;
}

class BadFilter : public testing::TestWithParam<Bad> {};

TEST_P(BadFilter, IsRefusedWithWhatToWrite) {
  const auto filter = DeviceFilter::parse(GetParam().text);
  ASSERT_FALSE(filter);
  EXPECT_EQ(filter.error().code, Errc::invalid_config);
  EXPECT_EQ(filter.error().message, std::string("'") + GetParam().text + "' is not a device filter");
  EXPECT_EQ(filter.error().hint, GetParam().hint);
}

constexpr const char* kForm =
    "write 0xDDDDVVVV or 0xDDDDVVVV:0xSSSSWWWW: device and vendor ID, then the board's subsystem IDs";

INSTANTIATE_TEST_SUITE_P(
    Table, BadFilter,
    testing::Values(Bad{"26B910DE", "put 0x in front: 0x26B910DE"},
                    Bad{"26b910de:0x185110DE", "put 0x in front: 0x26b910de"}, Bad{"", kForm},
                    Bad{"10de:26b9", kForm}, Bad{"0x", kForm}, Bad{"0xG", kForm}, Bad{"0x26B910DE:", kForm},
                    Bad{":0x26B910DE", kForm}, Bad{"0x1:0x2:0x3", kForm}, Bad{"0x126B910DE", kForm},
                    Bad{"4294967296", kForm}, Bad{"-1", kForm}, Bad{"+1", kForm}, Bad{" 0x26B910DE", kForm},
                    Bad{"0x26B910DE ", kForm}, Bad{"0x26B9__10DE", kForm}, Bad{"0x26B910DE_", kForm},
                    Bad{"_1", kForm}, Bad{"1_", kForm}, Bad{"08", kForm}, Bad{"0b2", kForm},
                    Bad{"all", kForm}, Bad{"0x26B910DE,0x1EB810DE", kForm}));

vfio::PciFunction l40s() {
  vfio::PciFunction function;
  function.vendor = 0x10de;
  function.device = 0x26b9;
  function.subsystem_vendor = 0x10de;
  function.subsystem_device = 0x1851;
  return function;
}

bool matches(const char* filter, const vfio::PciFunction& function) {
  return DeviceFilter::parse(filter).value().matches(function);
}

TEST(DeviceFilter, ComparesDeviceAndVendor) {
  EXPECT_TRUE(matches("0x26B910DE", l40s()));
  EXPECT_FALSE(matches("0x26BA10DE", l40s()));
  EXPECT_FALSE(matches("0x26B910DF", l40s()));
  EXPECT_FALSE(matches("0x10DE26B9", l40s()));
}

TEST(DeviceFilter, ComparesTheBoardWhereItNamesOne) {
  EXPECT_TRUE(matches("0x26B910DE:0x185110DE", l40s()));
  EXPECT_FALSE(matches("0x26B910DE:0x185210DE", l40s()));
  EXPECT_FALSE(matches("0x26B910DE:0x18511028", l40s()));
  EXPECT_FALSE(matches("0x26B910DE:0", l40s()));
}

TEST(DeviceFilter, TakesMissingSubsystemIdsForZero) {
  vfio::PciFunction function = l40s();
  function.subsystem_vendor.reset();
  function.subsystem_device.reset();
  EXPECT_TRUE(matches("0x26B910DE", function));
  EXPECT_TRUE(matches("0x26B910DE:0", function));
  EXPECT_FALSE(matches("0x26B910DE:0x185110DE", function));
}

}  // namespace
}  // namespace ferry::vgpu
