// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "common/text/encoding.h"

namespace ferry {
namespace {

TEST(PercentEscape, LeavesWhatIsUnreservedAndWritesEveryOtherByte) {
  EXPECT_EQ(percent_escaped("aZ09-._~"), "aZ09-._~");
  EXPECT_EQ(percent_escaped("a b/c:d?e&f=%"), "a%20b%2Fc%3Ad%3Fe%26f%3D%25");
  EXPECT_EQ(percent_escaped("\xC3\xA9"), "%C3%A9");
  EXPECT_EQ(percent_escaped(std::string_view("\0", 1)), "%00");
}

}  // namespace
}  // namespace ferry
