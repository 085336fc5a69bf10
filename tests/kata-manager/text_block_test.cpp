// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "kata-manager/runtimes/config_files.h"
#include "tests/support/must.h"

namespace ferry::kata {
namespace {

using test::must;

TEST(TextBlock, IsPutBehindAFileAndTakenAwayAgain) {
  for (const char* text :
       {"", "\n", "a", "a\n", "a\r\n", "a\r\nb", "a\nb\r\n", "\n\n", "a\r", "# ferry kata\n"}) {
    const std::string with = must(with_block(std::string(text), "x = 1\ny = 2\n"));
    EXPECT_TRUE(with.starts_with(text)) << text;
    EXPECT_TRUE(with.ends_with('\n'));
    EXPECT_EQ(must(block_of(with)), "x = 1\ny = 2\n");
    EXPECT_EQ(must(with_block(with, "x = 1\ny = 2\n")), with) << "twice is nothing";
    const std::string other = must(with_block(with, "z = 3\n"));
    EXPECT_EQ(must(block_of(other)), "z = 3\n");
    EXPECT_EQ(must(without_block(other)), text);
  }
}

TEST(TextBlock, TakesTheFileWithItThatItCameWith) {
  const std::string alone = must(with_block(std::nullopt, "x = 1\n"));
  EXPECT_EQ(must(without_block(alone)), std::nullopt);
  EXPECT_EQ(must(without_block("a = 1\n" + alone)), "a = 1\n") << "somebody has written into it since";
}

TEST(TextBlock, KeepsWhatIsAroundIt) {
  const std::string with = must(with_block(std::string("a"), "x = 1\n")) + "b\n";
  EXPECT_EQ(must(without_block(with)), "a\nb\n");
  EXPECT_EQ(must(without_block("nothing of ours")), "nothing of ours");
  EXPECT_EQ(must(block_of("nothing of ours")), std::nullopt);
}

TEST(TextBlock, IsNotGuessedWhereItIsNotWhole) {
  const std::string one = must(with_block(std::nullopt, "x = 1\n"));
  const std::string begin = one.substr(0, one.find('\n') + 1);
  for (const std::string& bad :
       {one + one, begin, begin + "x = 1\n", std::string("# ferry kata: end\n"), one + begin}) {
    EXPECT_EQ(with_block(bad, "y = 2\n").error().code, Errc::invalid_config) << bad;
    EXPECT_EQ(without_block(bad).error().code, Errc::invalid_config) << bad;
    EXPECT_EQ(block_of(bad).error().code, Errc::invalid_config) << bad;
  }
}

}  // namespace
}  // namespace ferry::kata
