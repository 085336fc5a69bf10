// SPDX-License-Identifier: Apache-2.0
#include "cli/output/table.h"

#include <gtest/gtest.h>

namespace ferry::cli {
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

TEST(Table, BreaksTheWidestCellsWhereNamesHaveParts) {
  Table table({"NODE", "RESOURCE"});
  table.add({"gpu-worker-1.example", "nvidia.com/AD102GL_L40S"});
  EXPECT_EQ(table.text(40),
            "NODE                 RESOURCE\n"
            "gpu-worker-1.        nvidia.com/AD102GL_\n"
            "example              L40S\n");
  EXPECT_EQ(table.width(), 45U);
  EXPECT_EQ(table.text(45), table.text()) << "it fits";
}

TEST(Table, BreaksNoColumnBelowWhatCanBeRead) {
  Table table({"A", "B"});
  table.add({std::string(30, 'x'), "short one"});
  EXPECT_EQ(table.text(10),
            "A             B\n"
            "xxxxxxxxxxxx  short one\n"
            "xxxxxxxxxxxx\n"
            "xxxxxx\n");
}

}  // namespace
}  // namespace ferry::cli
