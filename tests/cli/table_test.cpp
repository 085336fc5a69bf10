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

TEST(Table, HasNotesBesideAndBelowItsRows) {
  Table table({"A", "B"});
  table.add({"one", "two"});
  table.note("first note");
  table.note("second note");
  EXPECT_EQ(table.text({.columns = 30}),
            "A    B\n"
            "one  two  first note\n"
            "    second note\n");
  EXPECT_EQ(table.text({.columns = 12}),
            "A    B\n"
            "one  two\n"
            "    first note\n"
            "    second note\n");
}

TEST(Table, HasColoursOfItsCells) {
  Table table({"", ""});
  table.add({"one", "\033[31m"}, Tint::dim);
  table.tint(1, Tint::bad);
  EXPECT_EQ(table.text({.colour = true}), "\033[2mone\033[0m  \033[31m\\x1b[31m\033[0m\n")
      << "no heading; nothing else colours";
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
