// SPDX-License-Identifier: Apache-2.0
#include "common/text/visible_text.h"

#include <array>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace ferry {
namespace {

TEST(VisibleText, ShowsControlCharactersInsteadOfObeyingThem) {
  EXPECT_EQ(visible_line("a\033[2Jb\nc\rd\te\x7f"), R"(a\x1b[2Jb\x0ac\x0dd\x09e\x7f)");
  EXPECT_EQ(visible_line(std::string("\0\x1f", 2)), R"(\x00\x1f)");
  // U+009B is what ESC [ is.
  EXPECT_EQ(visible_line("a\xc2\x9b"
                         "2J"),
            R"(a\xc2\x9b2J)");
}

TEST(VisibleText, ShowsCharactersThatReorderTextInsteadOfObeyingThem) {
  for (const auto& [character, bytes, point] :
       std::vector<std::array<std::string, 3>>{{"\xd8\x9c", R"(\xd8\x9c)", "061c"},
                                               {"\xe2\x80\x8e", R"(\xe2\x80\x8e)", "200e"},
                                               {"\xe2\x80\x8f", R"(\xe2\x80\x8f)", "200f"},
                                               {"\xe2\x80\xaa", R"(\xe2\x80\xaa)", "202a"},
                                               {"\xe2\x80\xae", R"(\xe2\x80\xae)", "202e"},
                                               {"\xe2\x81\xa6", R"(\xe2\x81\xa6)", "2066"},
                                               {"\xe2\x81\xa9", R"(\xe2\x81\xa9)", "2069"}}) {
    EXPECT_EQ(visible_line("a" + character + "b"), "a" + bytes + "b");
    EXPECT_EQ(visible_lines("a\n" + character + "b"), "a\n" + bytes + "b");
    EXPECT_EQ(visible_json("{\"a\": \"" + character + "\"}"), "{\"a\": \"\\u" + point + "\"}");
  }
}

TEST(VisibleText, LeavesWhatIsText) {
  for (const char* text :
       {"", "qemu-system-x86", "\xd8\x9b\xd8\x9d", "\xe2\x80\x8d\xe2\x80\x90\xe2\x80\xaf",
        "\xe2\x81\xa5\xe2\x81\xaa", "Grafikkarte für zwei", "\xc2\xa0", "├─ 東京 🚢", R"(\x1b)"}) {
    EXPECT_EQ(visible_line(text), text);
    EXPECT_EQ(visible_lines(text), text);
    EXPECT_EQ(visible_json(text), text);
  }
}

// Where the character set is another one, each of them is a character, and some are control characters.
TEST(VisibleText, ShowsBytesThatAreNoUtf8) {
  EXPECT_EQ(visible_line("a\x9b"
                         "2J"),
            R"(a\x9b2J)");
  EXPECT_EQ(visible_line("\xc3"), R"(\xc3)");
  EXPECT_EQ(visible_line("\xe2\x94"
                         "a"),
            R"(\xe2\x94a)");
  EXPECT_EQ(visible_line("\xc0\x9b\xf5\xff"), R"(\xc0\x9b\xf5\xff)");
  EXPECT_EQ(visible_line("\xe0\x82\x9b \xf0\x80\x82\x9b"), R"(\xe0\x82\x9b \xf0\x80\x82\x9b)")
      << "U+009B in a longer form than it needs";
  EXPECT_EQ(visible_line("\xed\xa0\x80\xed\xbf\xbf"), R"(\xed\xa0\x80\xed\xbf\xbf)") << "surrogates";
  EXPECT_EQ(visible_line("\xf4\x90\x80\x80"), R"(\xf4\x90\x80\x80)") << "beyond U+10FFFF";
  for (const char* const text :
       {"\xe0\xa0\x80", "\xed\x9f\xbf", "\xee\x80\x80", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"})
    EXPECT_EQ(visible_line(text), text) << "the characters beside them";
}

TEST(VisibleText, OfLinesTheLayoutStays) {
  EXPECT_EQ(visible_lines("\033[31mbad\033[0m\n\tmore\r\n", Colours::kept), "\033[31mbad\033[0m\n\tmore\r\n");
  EXPECT_EQ(visible_lines("\033[31mbad\033[0m\n\tmore\r\n"), "\\x1b[31mbad\\x1b[0m\n\tmore\r\n");
  EXPECT_EQ(visible_lines("\033[8mhidden\033[2J\033]0;title\a\033"),
            R"(\x1b[8mhidden\x1b[2J\x1b]0;title\x07\x1b)");
}

TEST(VisibleText, OfJsonTheDocumentStays) {
  const nlohmann::json document = {{"a\x7f", "b\033\xc2\x9b\xc3\xbc"}};
  const std::string text = visible_json(document.dump());
  EXPECT_EQ(text, "{\"a\\u007f\":\"b\\u001b\\u009b\xc3\xbc\"}");
  EXPECT_EQ(nlohmann::json::parse(text), document);
  EXPECT_EQ(visible_json("\"\xc2\\\"\xc2\""), R"("\ufffd\"\ufffd")")
      << "half a character hides no end of a string";
}

}  // namespace
}  // namespace ferry
