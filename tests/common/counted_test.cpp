// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "common/text/text.h"

namespace ferry {
namespace {

TEST(Counted, SaysOneAsOneAndEverythingElseAsMany) {
  EXPECT_EQ(counted(0, "warning"), "0 warnings");
  EXPECT_EQ(counted(1, "warning"), "1 warning");
  EXPECT_EQ(counted(2, "warning"), "2 warnings");
  EXPECT_EQ(counted(1, "switch", "switches"), "1 switch");
  EXPECT_EQ(counted(0, "switch", "switches"), "0 switches");
}

TEST(BeginningOf, ATextCutsNoCharacter) {
  EXPECT_EQ(beginning_of("aé", 3), "aé");
  EXPECT_EQ(beginning_of("aé", 2), "a");
  EXPECT_EQ(beginning_of("aéb", 3), "aé");
  EXPECT_EQ(beginning_of("é", 1), "");
  EXPECT_EQ(beginning_of("", 0), "");
}

}  // namespace
}  // namespace ferry
