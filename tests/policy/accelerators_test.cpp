// SPDX-License-Identifier: Apache-2.0
#include "policy/accelerators.h"

#include <ostream>

#include <gtest/gtest.h>

namespace ferry::policy {
namespace {

struct Row {
  const char* name;
  std::uint16_t vendor;
  std::uint32_t class_code;
  vfio::HeaderType header;
  bool virtual_function;
  bool counts;
};
void PrintTo(const Row& row, std::ostream* out) {
  *out << row.name;
}

class DefaultAccelerators : public testing::TestWithParam<Row> {};

TEST(AcceleratorsOnRequest, AreNvSwitchesAndTheirsIsTheOnlyClassThatAskingAdds) {
  vfio::PciFunction nvswitch;
  nvswitch.vendor = 0x10de;
  nvswitch.class_code = 0x068000;
  const vfio::AcceleratorRules rules = default_accelerator_rules();
  EXPECT_FALSE(rules.match(nvswitch));
  EXPECT_TRUE(rules.asking_for(vfio::PciClass::bridge_other).match(nvswitch));
  EXPECT_TRUE(rules.asking_for_all().match(nvswitch));
  EXPECT_FALSE(rules.asking_for(vfio::PciClass::vga).match(nvswitch));

  vfio::PciFunction audio;
  audio.vendor = 0x10de;
  audio.class_code = 0x040300;
  EXPECT_FALSE(rules.asking_for(vfio::PciClass::audio).match(audio)) << "a class that nobody offers";
  nvswitch.header = vfio::HeaderType::pci_bridge;
  EXPECT_FALSE(rules.asking_for_all().match(nvswitch)) << "a bridge carries what is below it";
}

TEST(AcceleratorsByName, AreDisplaysAndProcessingAcceleratorsOfAnyVendor) {
  vfio::PciFunction gpu;
  gpu.vendor = 0x1002;
  gpu.class_code = 0x030000;
  vfio::AcceleratorRules rules = default_accelerator_rules();
  EXPECT_FALSE(rules.match(gpu));
  EXPECT_TRUE(rules.only_by_name(gpu));
  EXPECT_FALSE(rules.asking_for_all().match(gpu)) << "what can be asked for of NVIDIA's";
  for (const std::uint32_t code : {0x030100U, 0x030200U, 0x038000U, 0x120000U}) {
    gpu.class_code = code;
    EXPECT_TRUE(rules.match_by_name(gpu)) << code;
  }
  rules.named_vendors = {0x8086, 0x10de};
  EXPECT_FALSE(rules.match(gpu));
  rules.named_vendors = {0x1002};
  EXPECT_TRUE(rules.match(gpu));
  EXPECT_FALSE(rules.match_unnamed(gpu));
  rules.named_vendors.clear();
  rules.named = {gpu.address};
  EXPECT_TRUE(rules.match(gpu));
  gpu.class_code = 0x010802;
  EXPECT_FALSE(rules.match(gpu)) << "a disk is none, whoever names it";

  vfio::PciFunction nvswitch;
  nvswitch.vendor = 0x10de;
  nvswitch.class_code = 0x068000;
  rules = default_accelerator_rules();
  rules.named_vendors = {0x10de};
  EXPECT_FALSE(rules.match(nvswitch)) << "NVIDIA's GPUs are meant";
  rules.named = {nvswitch.address};
  EXPECT_TRUE(rules.match(nvswitch));
}

TEST(DefaultAcceleratorsOf, TheTimeBeforeAmpereNeverHaveVirtualFunctions) {
  const auto never = [](std::uint16_t vendor, std::uint16_t device) {
    vfio::PciFunction function;
    function.vendor = vendor;
    function.device = device;
    return default_accelerator_rules().never_has_virtual_functions(function);
  };
  const std::initializer_list<std::uint16_t> old = {0x1eb8 /*T4*/, 0x1e30 /*RTX 8000*/, 0x1db6 /*V100*/,
                                                    0x1b38 /*P40*/, 0x13f2 /*M60*/};
  for (const std::uint16_t device : old) EXPECT_TRUE(never(0x10de, device)) << device;
  const std::initializer_list<std::uint16_t> others = {0x25b6 /*A16*/, 0x20b5 /*A100*/, 0x26b9 /*L40S*/,
                                                       0x2330 /*H100*/, 0xffff /*unknown*/};
  for (const std::uint16_t device : others) EXPECT_FALSE(never(0x10de, device)) << device;
  EXPECT_FALSE(never(0x1002, 0x1eb8));
}

TEST_P(DefaultAccelerators, AreDisplayFunctionsOfTheVendor) {
  const Row& row = GetParam();
  vfio::PciFunction function;
  function.vendor = row.vendor;
  function.class_code = row.class_code;
  function.header = row.header;
  if (row.virtual_function) function.physical_function = vfio::PciAddress{};
  EXPECT_EQ(default_accelerator_rules().match(function), row.counts);
}

INSTANTIATE_TEST_SUITE_P(
    Table, DefaultAccelerators,
    testing::Values(Row{"Vga", 0x10de, 0x030000, vfio::HeaderType::endpoint, false, true},
                    Row{"Display3d", 0x10de, 0x030200, vfio::HeaderType::endpoint, false, true},
                    Row{"Audio", 0x10de, 0x040300, vfio::HeaderType::endpoint, false, false},
                    Row{"NvSwitch", 0x10de, 0x068000, vfio::HeaderType::endpoint, false, false},
                    Row{"OtherVendor", 0x1002, 0x030000, vfio::HeaderType::endpoint, false, false},
                    Row{"VirtualFunction", 0x10de, 0x030200, vfio::HeaderType::endpoint, true, false},
                    Row{"Bridge", 0x10de, 0x030000, vfio::HeaderType::pci_bridge, false, false}),
    [](const auto& row) { return row.param.name; });

}  // namespace
}  // namespace ferry::policy
