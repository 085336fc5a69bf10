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

TEST(Base64, IsWrittenPadded) {
  EXPECT_EQ(to_base64(""), "");
  EXPECT_EQ(to_base64("f"), "Zg==");
  EXPECT_EQ(to_base64("fo"), "Zm8=");
  EXPECT_EQ(to_base64("foo"), "Zm9v");
  EXPECT_EQ(to_base64("foob"), "Zm9vYg==");
  EXPECT_EQ(to_base64(std::string("\0\xff\xbf\xfb", 4)), "AP+/+w==");
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all.push_back(static_cast<char>(byte));
  EXPECT_EQ(from_base64(to_base64(all)), all);
}

TEST(Base64, IsNoneWithOtherLetters) {
  for (const char* text : {"Z", "Zm9vY", "Z===", "=", "Zg=", "Zm9v=", "Zm 8", "Zm9_", "Zm=v", "Zm9v!"})
    EXPECT_EQ(from_base64(text), std::nullopt) << text;
}

}  // namespace
}  // namespace ferry
