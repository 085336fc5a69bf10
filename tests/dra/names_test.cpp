// SPDX-License-Identifier: Apache-2.0
#include "dra/names.h"

#include <string>

#include <gmock/gmock.h>

#include "tests/dra/some_gpus.h"

namespace ferry::dra {
namespace {

using test::at;
using testing::EndsWith;
using testing::StartsWith;

TEST(DraNames, OfPoolsHaveTheDriverInThem) {
  EXPECT_EQ(pool_name("node7"), "node7/gpu-ferry");
  EXPECT_EQ(pool_name(std::string(243, 'n')).size(), kLongestPool);
  const std::string first = pool_name(std::string(252, 'n') + "1");
  EXPECT_LE(first.size(), kLongestPool);
  EXPECT_THAT(first, EndsWith("/gpu-ferry"));
  EXPECT_NE(first, pool_name(std::string(252, 'n') + "2")) << "two nodes never share a pool";
  const std::string dotted = pool_name(std::string(233, 'n') + "." + std::string(19, 'm'));
  EXPECT_EQ(dotted.find(".-"), std::string::npos) << dotted << " would be no DNS name";
}

TEST(DraNames, OfSlicesAreShortEnoughForTheServer) {
  EXPECT_EQ(slice_name_prefix(31, "node7"), "0001f-gpu-ferry.io-node7-");
  const std::string longest = slice_name_prefix(0, std::string(253, 'n'));
  EXPECT_EQ(longest, "00000-gpu-ferry.io-" + std::string(38, 'n') + "-");
  EXPECT_EQ(longest.size(), kLongestGenerateName);
  EXPECT_EQ(slice_name_prefix(0, std::string(37, 'n') + ".example.com"),
            "00000-gpu-ferry.io-" + std::string(37, 'n') + "-")
      << "\".-\" would be no DNS name";
}

TEST(DraNames, OfDevicesDoNotDependOnTheOrderOfGpus) {
  EXPECT_EQ(whole_device_name(at("0000:3b:00.0")), "whole-0000-3b-00-0");
  EXPECT_EQ(vgpu_device_name(at("0000:3b:00.0"), "1150", 3), "vgpu-0000-3b-00-0-1150-3");
  EXPECT_EQ(vgpu_device_name(at("0000:3b:00.0"), "nvidia-1150", 3), "vgpu-0000-3b-00-0-1150-3");
  EXPECT_EQ(vgpu_device_name(at("10000:e1:00.0"), "i915-gvtg", 0), "vgpu-10000-e1-00-0-i915-gvtg-0");
  EXPECT_EQ(counter_set_name(42), "group-42");
}

TEST(DraNames, OfTypesAreMadeLabels) {
  const std::string name = vgpu_device_name(at("0000:00:02.0"), "i915-GVTg_V5_4", 1);
  EXPECT_THAT(name, StartsWith("vgpu-0000-00-02-0-i915-gvtg-v5-4-"));
  EXPECT_THAT(name, EndsWith("-1"));
  EXPECT_NE(name, vgpu_device_name(at("0000:00:02.0"), "i915-GVTg_V5-4", 1));
  const std::string longest = vgpu_device_name(at("ffffffff:00:02.0"), std::string(80, 'x'), 4294967295U);
  EXPECT_LE(longest.size(), kLongestName) << longest;
  EXPECT_NE(longest, vgpu_device_name(at("ffffffff:00:02.0"), std::string(81, 'x'), 4294967295U));
  EXPECT_EQ(type_number("nvidia-1150"), 1150U);
  EXPECT_EQ(type_number("1150"), 1150U);
  EXPECT_FALSE(type_number("i915-1"));
  EXPECT_FALSE(type_number("nvidia-"));
}

TEST(DraNames, TextsOfAttributesAreCutBetweenCharacters) {
  const std::string fits(kLongestText, 'x');
  EXPECT_EQ(attribute_text(fits), fits);
  EXPECT_EQ(attribute_text(fits + "y"), fits);
  EXPECT_EQ(attribute_text(fits.substr(1) + "\xc3\xa9"), fits.substr(1)) << "half a character is no UTF-8";
  EXPECT_EQ(attribute_text("a\xff"), "a\\xff");
}

TEST(DraNames, TaintValuesAreValuesOfLabels) {
  EXPECT_EQ(taint_value("fatal PCIe errors: 2"), "fatal-PCIe-errors-2");
  EXPECT_EQ(taint_value("...(x.y)..."), "x.y");
  EXPECT_EQ(taint_value("\xc3\xa9"), "");
  EXPECT_EQ(taint_value(std::string(80, 'x')).size(), kLongestName);
}

TEST(DraNames, QuantitiesAreWrittenAsTheServerWritesThem) {
  for (const auto& [value, text] : {std::pair{0ULL, "0"},
                                    {1ULL, "1"},
                                    {96ULL, "96"},
                                    {1536ULL, "1536"},
                                    {24ULL << 30U, "24Gi"},
                                    {23034ULL << 20U, "23034Mi"},
                                    {1ULL << 60U, "1Ei"}}) {
    EXPECT_EQ(quantity_text(value), text);
    EXPECT_EQ(parse_quantity(text), value) << text;
  }
  EXPECT_EQ(parse_quantity("1k"), 1000U);
  EXPECT_EQ(parse_quantity("18446744073709551615"), 18446744073709551615ULL);
  for (const char* const other : {"", "Gi", "-1", "1.5", "1m", "1e3", "18446744073709551616", "16Ei", "1 "})
    EXPECT_FALSE(parse_quantity(other)) << other;
}

TEST(DraNames, TheServersBusIdHasFourDigitsOfADomain) {
  EXPECT_TRUE(fits_pci_bus_id(at("ffff:01:00.0")));
  EXPECT_FALSE(fits_pci_bus_id(at("10000:01:00.0")));
}

}  // namespace
}  // namespace ferry::dra
