// SPDX-License-Identifier: Apache-2.0
#include "cli/table.h"

#include <gtest/gtest.h>

namespace ferry {
namespace {

TEST(Table, AlignsColumnsAndBreaksCellsIntoLines) {
  Table table({"A", "LONGER", "C"});
  table.add({"one", "x\nyy", ""});
  table.add({"", "z", "end"});
  EXPECT_EQ(table.text(),
            "A    LONGER  C\n"
            "one  x       -\n"
            "     yy\n"
            "-    z       end\n");
}

}  // namespace
}  // namespace ferry
