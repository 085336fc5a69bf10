// SPDX-License-Identifier: Apache-2.0
#include "vfio/pci/memory_map.h"

#include <gmock/gmock.h>

namespace ferry::vfio {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(MemoryMap, IsReadAtEveryLevel) {
  const MemoryMap map = parse_memory_map(
      "00001000-0009ffff : System RAM\n4000000000-43ffffffff : PCI Bus 0000:65\n"
      "  4000000000-43ffffffff : 0000:65:00.0\n    4000000000-40007fffff : BOOTFB\n");
  EXPECT_EQ(map.malformed, 0U);
  EXPECT_FALSE(map.hidden());
  ASSERT_EQ(map.claims.size(), 4U);
  EXPECT_EQ(map.claims[3], (MemoryClaim{.start = 0x4000000000, .end = 0x40007fffff, .name = "BOOTFB"}));
}

TEST(MemoryMap, IsHiddenWhenEveryAddressIsZero) {
  EXPECT_TRUE(parse_memory_map("00000000-00000000 : System RAM\n").hidden());
  EXPECT_FALSE(parse_memory_map("").hidden());
  EXPECT_FALSE(parse_memory_map("00000000-00000000 : A\n00000000-00000fff : B\n").hidden());
}

TEST(MemoryMap, CountsLinesThatAreNoClaim) {
  for (const char* line :
       {"nonsense", "1000", "1000-2000", "1000-2000 :", "x-y : name", "2000-1000 : backwards", "1000 : name",
        "-2000 : name", "1000- : name", "10000000000000000-2 : too wide", "0x1000-0x2000 : prefixed"}) {
    const MemoryMap map = parse_memory_map(line);
    EXPECT_THAT(map.claims, IsEmpty()) << line;
    EXPECT_EQ(map.malformed, 1U) << line;
  }
  const MemoryMap mixed = parse_memory_map("?\n1000-1fff : A\n\n");
  EXPECT_EQ(mixed.malformed, 2U);
  EXPECT_THAT(mixed.claims, ElementsAre(MemoryClaim{.start = 0x1000, .end = 0x1fff, .name = "A"}));
}

}  // namespace
}  // namespace ferry::vfio
