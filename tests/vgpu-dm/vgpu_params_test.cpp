// SPDX-License-Identifier: Apache-2.0
#include "vgpu-dm/profile/vgpu_params.h"

#include <gtest/gtest.h>

namespace ferry::vgpu {
namespace {

std::string read(std::string_view text) {
  const auto params = VgpuParams::parse(text);
  return params ? params->text() : params.error().message;
}

TEST(VgpuParams, AreKeysAndValuesInOrder) {
  EXPECT_EQ(read("frame_rate_limiter=0"), "frame_rate_limiter=0");
  EXPECT_EQ(read("b=2,a=1"), "b=2,a=1");
  EXPECT_EQ(read(" b=2  a=1,\n"), "b=2,a=1");  // as a driver may print them
  EXPECT_EQ(read("pciaddr1=0x1.2-3"), "pciaddr1=0x1.2-3");
  EXPECT_EQ(read(""), "");
  EXPECT_EQ(read(" \n"), "");
}

TEST(VgpuParams, AreRefusedWhereTheyAreNone) {
  for (const char* bad : {"fast", "=1", "a=", "a=1=2", "a b=1", "\xc3\xa4=1", "a=\x01"}) {
    const auto params = VgpuParams::parse(bad);
    ASSERT_FALSE(params) << bad;
    EXPECT_EQ(params.error().code, Errc::invalid_config);
    EXPECT_NE(params.error().hint, "");
  }
  EXPECT_EQ(read("a=1,b=2,a=1"), "'a' stands twice");
  EXPECT_EQ(read("a=" + std::string(4094, 'x')), "longer than 4095 bytes, which no driver takes");
  EXPECT_EQ(read("a=" + std::string(4093, 'x')).size(), 4095U);
}

TEST(VgpuParams, AreTheSameWhateverTheirOrder) {
  EXPECT_EQ(VgpuParams::parse("a=1,b=2").value(), VgpuParams::parse("b=2 a=1").value());
  EXPECT_FALSE(VgpuParams::parse("a=1").value() == VgpuParams::parse("a=2").value());
  EXPECT_FALSE(VgpuParams::parse("a=1").value() == VgpuParams::parse("a=1,b=2").value());
}

TEST(VgpuParams, AreTakenAwayByABlank) {
  EXPECT_EQ(VgpuParams{}.attribute(), " ");
  EXPECT_EQ(VgpuParams::parse("a=1").value().attribute(), "a=1");
}

}  // namespace
}  // namespace ferry::vgpu
