// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "common/text/encoding.h"

namespace ferry {
namespace {

TEST(Base64, IsReadPaddedOrNot) {
  EXPECT_EQ(from_base64(""), "");
  EXPECT_EQ(from_base64("Zg=="), "f");
  EXPECT_EQ(from_base64("Zg"), "f");
  EXPECT_EQ(from_base64("Zm8="), "fo");
  EXPECT_EQ(from_base64("Zm9v"), "foo");
  EXPECT_EQ(from_base64("Zm9v\r\nYmFy\n"), "foobar");
  EXPECT_EQ(from_base64("AP+/+w=="), std::string("\0\xff\xbf\xfb", 4));
}

TEST(Base64, IsNoneWithOtherLetters) {
  for (const char* text : {"Z", "Zm9vY", "Z===", "=", "Zg=", "Zm9v=", "Zm 8", "Zm9_", "Zm=v", "Zm9v!"})
    EXPECT_EQ(from_base64(text), std::nullopt) << text;
}

}  // namespace
}  // namespace ferry
