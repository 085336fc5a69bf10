// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "common/text/text.h"

namespace ferry {
namespace {

TEST(UnifiedDiff, ShowsWhatChangesWithThreeLinesAround) {
  EXPECT_EQ(unified_diff("/a", "1\n2\n3\n4\n5\n6\n7\n8\n9\n", "1\n2\n3\n4\n5\nsix\n7\n8\n9\n"),
            "--- /a\n+++ /a\n@@ -3,7 +3,7 @@\n 3\n 4\n 5\n-6\n+six\n 7\n 8\n 9\n");
  EXPECT_EQ(unified_diff("/a", "1\n2\n", "1\n2\n3\n"), "--- /a\n+++ /a\n@@ -1,2 +1,3 @@\n 1\n 2\n+3\n");
  EXPECT_EQ(unified_diff("/a", "1\n", "1\n"), "");
}

TEST(UnifiedDiff, KnowsFilesThatAreNotThere) {
  EXPECT_EQ(unified_diff("/a", std::nullopt, "1\n"), "--- /dev/null\n+++ /a\n@@ -0,0 +1 @@\n+1\n");
  EXPECT_EQ(unified_diff("/a", "1\n2\n", std::nullopt), "--- /a\n+++ /dev/null\n@@ -1,2 +0,0 @@\n-1\n-2\n");
}

TEST(UnifiedDiff, SaysWhereNoNewlineEndsAFile) {
  EXPECT_EQ(unified_diff("/a", "1\n2", "1\n2\n3\n"),
            "--- /a\n+++ /a\n@@ -1,2 +1,3 @@\n 1\n-2\n\\ No newline at end of file\n+2\n+3\n");
}

TEST(UnifiedDiff, OfRepeatedLinesCountsNoneTwice) {
  EXPECT_EQ(unified_diff("/a", "x\nx\n", "x\nx\nx\n"), "--- /a\n+++ /a\n@@ -1,2 +1,3 @@\n x\n x\n+x\n");
  EXPECT_EQ(unified_diff("/a", "x\nx\nx\n", "x\n"), "--- /a\n+++ /a\n@@ -1,3 +1 @@\n x\n-x\n-x\n");
}

}  // namespace
}  // namespace ferry
