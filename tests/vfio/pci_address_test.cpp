// SPDX-License-Identifier: Apache-2.0
#include "vfio/pci/pci_address.h"

#include <gmock/gmock.h>

namespace ferry::vfio {
namespace {

TEST(PciAddress, ReadsAndPrintsWhatSysfsHas) {
  for (const char* text :
       {"0000:00:00.0", "0000:3b:00.0", "0000:ff:1f.7", "10000:01:00.0", "ffffffff:00:00.0"}) {
    const auto address = PciAddress::parse(text);
    ASSERT_TRUE(address) << text;
    EXPECT_EQ(address->text(), text);
  }
  EXPECT_EQ(PciAddress::parse("0000:3B:00.0")->text(), "0000:3b:00.0");
}

TEST(PciAddress, OrdersByNumberNotByText) {
  EXPECT_LT(*PciAddress::parse("0000:ff:00.0"), *PciAddress::parse("10000:01:00.0"));
  EXPECT_LT(*PciAddress::parse("2000:01:00.0"), *PciAddress::parse("10000:01:00.0"));
}

TEST(PciAddress, SuggestsTheLongFormOfAShortOne) {
  const auto short_form = PciAddress::parse("3b:00.0");
  ASSERT_FALSE(short_form);
  EXPECT_EQ(short_form.error().code, Errc::usage);
  EXPECT_EQ(short_form.error().message, "'3b:00.0' is not a PCI address");
  EXPECT_EQ(short_form.error().hint, "did you mean 0000:3b:00.0?");
}

class MalformedAddress : public testing::TestWithParam<const char*> {};

TEST_P(MalformedAddress, IsRefused) {
  const auto address = PciAddress::parse(GetParam());
  ASSERT_FALSE(address) << GetParam();
  EXPECT_EQ(address.error().code, Errc::usage);
}

INSTANTIATE_TEST_SUITE_P(Table, MalformedAddress,
                         testing::Values("", " ", "0", "0000", "0000:3b:00", "0000:3b:00.", "0000:3b:00.8",
                                         "0000:3b:20.0", "0000:3b:1f.00", "000:3b:00.0", "0000:3b:00.0 ",
                                         " 0000:3b:00.0", "0000:3b:00.0\n", "0000:3b:00.0/..", "0000-3b-00.0",
                                         "0000:3b.00:0", "g000:3b:00.0", "0000:3g:00.0", "0000:-1:00.0",
                                         "0x00:3b:00.0", "+000:3b:00.0", "100000000:01:00.0",
                                         "0000:3b:00.0:0", "../../../etc/passwd", "0000:3b:00,0"));

}  // namespace
}  // namespace ferry::vfio
