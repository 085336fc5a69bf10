// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/toml/toml.h"

#include <chrono>

#include <gmock/gmock.h>

#include "tests/support/must.h"

namespace ferry::kata {
namespace {

using test::must;

TomlTable parse(std::string_view text) {
  return must(parse_toml(text, "f.toml"));
}

TEST(Toml, IsReadAsValues) {
  const TomlTable root = parse("a = 1\nb.c = [true, \"x\", 1.5]\n[\"d.e\".f]\ng = 2026-11-20\n");
  EXPECT_EQ(*find(root, {"a"})->integer(), 1);
  ASSERT_EQ(find(root, {"b", "c"})->array()->size(), 3U);
  EXPECT_EQ(*find(root, {"d.e", "f", "g"})->string(), "2026-11-20");
  EXPECT_EQ(find(root, {"a", "b"}), nullptr);
  EXPECT_EQ(find(root, {"d", "e"}), nullptr);
  EXPECT_EQ(find(root, {"none"}), nullptr);
}

TEST(Toml, IsLookedUpByType) {
  const TomlTable root = parse("a = \"x\"\nb.c = [true, \"y\"]\nd = true\ne = \"\"\n");
  EXPECT_EQ(find_table(root, {"b"})->size(), 1U);
  for (const char* key : {"a", "none"}) EXPECT_EQ(find_table(root, {key}), nullptr) << key;
  EXPECT_EQ(text_at(root, {"a"}), "x");
  for (const char* key : {"b", "d", "e", "none"}) EXPECT_EQ(text_at(root, {key}), "") << key;
  EXPECT_EQ(texts_at(root, {"b", "c"}), (std::vector<std::string>{"", "y"}));
  EXPECT_TRUE(texts_at(root, {"a"}).empty());
  EXPECT_TRUE(is_true_at(root, {"d"}));
  for (const char* key : {"a", "b", "none"}) EXPECT_FALSE(is_true_at(root, {key})) << key;
}

TEST(Toml, SaysWhichTableIsWrittenInOneLine) {
  const auto depth = [](std::string_view text) {
    const auto found = inline_table_on(text, {"a", "b.c", "d"});
    return found ? std::pair<std::size_t, std::uint32_t>(found->depth, found->line)
                 : std::pair<std::size_t, std::uint32_t>(0, 0);
  };
  using Place = std::pair<std::size_t, std::uint32_t>;
  EXPECT_EQ(depth(""), Place(0, 0));
  EXPECT_EQ(depth("[a]\n[a.\"b.c\"]\nd.e = {f = 1}\n"), Place(0, 0)) << "what is in it may be";
  EXPECT_EQ(depth("[a]\n[a.\"b.c\"]\nd = {e = 1}\n"), Place(3, 3));
  EXPECT_EQ(depth("x = 1\n[a]\n'b.c' = {d = {e = 1}}\n"), Place(2, 3)) << "the first";
  EXPECT_EQ(depth("\na = {}\n"), Place(1, 2));
  EXPECT_EQ(depth("a.\"b.c\".d.e = 1\n"), Place(0, 0));
  EXPECT_EQ(depth("a = 1\n"), Place(0, 0));
  EXPECT_EQ(depth("a = {\n"), Place(0, 0)) << "no TOML";
}

TEST(Toml, SaysOnWhichLineAValueStands) {
  constexpr const char* kText = "a = 1\n[b]\n[b.\"c.d\"]\ne = [\n 1]\n";
  EXPECT_EQ(line_of(kText, {"a"}), 1U);
  EXPECT_EQ(line_of(kText, {"b", "c.d"}), 3U);
  EXPECT_EQ(line_of(kText, {"b", "c.d", "e"}), 4U);
  EXPECT_EQ(line_of(kText, {"b", "c", "d"}), std::nullopt);
  EXPECT_EQ(line_of(kText, {"a", "b"}), std::nullopt);
  EXPECT_EQ(line_of("a = {\n", {"a"}), std::nullopt) << "no TOML";
}

// The library prints the first two characters of a quoted key twice.
TEST(Toml, NamesAKeyThatIsThereTwiceAsItIsWritten) {
  struct Row {
    const char* text;
    const char* key;
  };
  for (const Row& row :
       {Row{"[a.\"io.x\".b]\n[a.\"io.x\".b]\n", "existing table 'a.\"io.x\".b'"},
        Row{"['io.x'.\"abc\"]\n  ['io.x'.\"abc\"] # a ]\n", "existing table ''io.x'.\"abc\"'"},
        Row{"[\"a]\\\"b\"]\n[[\"a]\\\"b\"]]\n", "existing table '\"a]\\\"b\"' as"},
        Row{"\"io.x\" = 1\n\"io.x\" = 2", "existing integer '\"io.x\"'"},
        Row{"[a]\n[b]\n[a]\n", "existing table 'a'"}}) {
    const auto result = parse_toml(row.text, "f.toml");
    ASSERT_FALSE(result) << row.text;
    EXPECT_THAT(result.error().message, testing::HasSubstr(row.key));
  }
}

TEST(Toml, SaysWhereItIsMalformed) {
  struct Row {
    const char* text;
    const char* place;
  };
  for (const Row& row :
       {Row{"a = 1\na = 2\n", "f.toml:2:"}, Row{"[a\n", "f.toml:1:"}, Row{"a = \"\n", "f.toml:1:"},
        Row{"{{ template \"base\" . }}\n", "f.toml:1:1: "}, Row{"a = 1\n\n[b]\nc = \n", "f.toml:4:"}}) {
    const auto result = parse_toml(row.text, "f.toml");
    ASSERT_FALSE(result) << row.text;
    EXPECT_EQ(result.error().code, Errc::invalid_config);
    EXPECT_THAT(result.error().message, testing::StartsWith(row.place));
  }
}

// toml++ asserts that a header begins with a key.
TEST(Toml, IsMalformedWhereTheLibraryAsserts) {
  for (const char* bad : {"[.a]\n", "[.\"a.b\".c]\nd = 1\n"}) {
    const auto result = parse_toml(bad, "f.toml");
    ASSERT_FALSE(result) << bad;
    EXPECT_EQ(result.error().code, Errc::invalid_config);
  }
}

TEST(Toml, IsRefusedWhereItIsNestedTooDeep) {
  const auto path = [](std::size_t parts, const std::string& key = "k") {
    std::string out = key;
    for (std::size_t i = 1; i < parts; ++i) out += "." + key;
    return out;
  };
  const auto lists = [](std::size_t levels) {
    return "a = " + std::string(levels, '[') + std::string(levels, ']') + "\n";
  };
  std::string numbers = "a = [";
  for (int i = 0; i < 100; ++i) numbers += "1.5,";
  for (const std::string& good :
       {"[" + path(64) + "]\na = 1\n", path(64) + " = 1\n", "[[" + path(60) + "]]\na.b = 1\n", lists(60),
        numbers + "]\n", "a = \"" + path(100) + "\" # " + path(100) + "\n",
        "a = '''\n" + path(100) + "\n''''\n", "a = \"\"\"\n\\\"" + path(100) + "\n\"\"\"\"\"\n"})
    EXPECT_TRUE(parse_toml(good, "f.toml")) << good;
  for (const std::string& bad :
       {"[" + path(100) + "]\n", path(100, "\"'#\"") + " = 1\n", path(100, "'\"#' ") + " = 1\n",
        "[" + path(40) + "]\n" + path(40) + " = 1\n", "[[" + path(40) + "]]\n" + path(40) + " = 1\n",
        "a = {" + path(100) + " = 1}\n", "a = {b = \"\"\"x\"\"\"\", " + path(100) + " = 1}\n",
        "a = {b = '''x''''', " + path(100) + " = 1}\n", lists(65), lists(5000),
        // toml++ cannot destroy the trees of these.
        "[" + path(500'000) + "]\n", "[" + path(500'000) + "]\n!\n",
        "a = \"\\\"\"\n" + path(500'000, "'k'") + " = {\n"}) {
    const auto result = parse_toml(bad, "f.toml");
    ASSERT_FALSE(result) << bad.substr(0, 100);
    EXPECT_EQ(result.error().code, Errc::invalid_config);
    EXPECT_THAT(result.error().message, testing::StartsWith("f.toml:"));
  }
  EXPECT_THAT(parse_toml("a = 1\n[" + path(65) + "]\n", "f.toml").error().message,
              testing::StartsWith("f.toml:2: a key has more than 64 parts"));
}

TEST(Toml, IsReadInTimeWhereItIsAllQuotes) {
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_FALSE(parse_toml(std::string(1 << 20, '\''), "f.toml"));
  EXPECT_FALSE(parse_toml(std::string(1 << 20, '"'), "f.toml"));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
}

TEST(Toml, HasCharactersAboveAsciiInStringsAndCommentsAlone) {
  for (const char* good :
       {"# \xc3\xa4\na = 1\n", "a = \"\xc3\xa4\\\"\xc3\xa4\"\n", "a = '\xc3\xa4\\' # \xc3\xa4\n",
        "a = \"\"\"\n\xc3\xa4\"\"\xc3\xa4\n\"\"\"\"\"\nb = 1\n", "a = '''\xc3\xa4\n''''\n",
        "\"\xc3\xa4\" = 1\n", "\xef\xbb\xbf\x61 = 1\n", "0.\"\xc3\xa4\".b = 1\r\n",
        "[a . '\xc3\xa4']\n[[b.\"\xc3\xa4\"]]\n[c]\n'\xc3\xa4'.d = 1\n",
        "a = [\"\xc3\xa4\", [ '\xc3\xa4' ],\n  \"\xc3\xa4\", # \xc3\xa4\n]\n\"\xc3\xa4\" = 1\n",
        "a = {b = [\"\xc3\xa4\"], c.'\xc3\xa4' = {'\xc3\xa4' = \"\xc3\xa4\"}, '\xc3\xa4' = 1}\n"})
    EXPECT_TRUE(parse_toml(good, "f.toml")) << good;
  for (const char* bad :
       {"\xc3\xa4 = 1\n", "a = 1\xc2\xa0\n", "a = \"\" \xc3\xa4\n", "[p\xef\xbb\xba", "a = '\n\xc3\xa4",
        // A quote within a value begins no string.
        "a =0\"\xc3\xa4\"\n", "a = 0.\"\xc3\xa4\"\n", "a = [0.'\xc3\xa4']\n",
        "a = [\n1,\n  t.\"\xc3\xa4\"]\n", "a = {b = 1.'\xc3\xa4'}\n", "a = {b = [2.\"\xc3\xa4\"]}\n",
        "a\"\xc3\xa4\" = 1\n",
        // Blanks and line ends of Unicode are none of TOML's.
        "a =\xe2\x80\xa8 1\n", "a = [\xe2\x80\xa8]\n", "a = 1\xe2\x80\xa8\x62 = 2\n",
        "a = 1 #\n\xc2\x85\x62 = 2\n"}) {
    const auto result = parse_toml(bad, "f.toml");
    ASSERT_FALSE(result) << bad;
    EXPECT_EQ(result.error().code, Errc::invalid_config);
    EXPECT_THAT(result.error().message, testing::StartsWith("f.toml:"));
  }
  EXPECT_THAT(parse_toml("a = 1\nb\xc3\xa4 = 2\n", "f.toml").error().message,
              testing::StartsWith("f.toml:2:"));
}

// The library asks of each character behind such a backslash whether it is a blank. The sanitizer tells.
TEST(Toml, TakesNoOtherCharacterForABlank) {
  using std::string_literals::operator""s;
  for (const auto& bad :
       {"[\"\"\"[\\\\\\ \xc4\xa2\\\\"s, "a = \"\"\"\\ \xc4\xa2\"\"\"\n"s, "a = \"\"\"\\\xe3\x81\x82\"\"\"\n"s,
        "9=9{{{\"\0{{{\xd1\xa3\xe5\xa4\xafU\0\0{{-"s}) {
    const auto read = parse_toml(bad, "f.toml");
    ASSERT_FALSE(read) << bad;
    EXPECT_THAT(read.error().message, testing::StartsWith("f.toml:1:")) << bad;
  }
  // One from each gap in its table.
  for (const auto& letter : {"\xc4\xa2"s, "\xe3\x81\x82"s, "\xef\xba\x8d"s})
    EXPECT_EQ(*must(parse_toml("a = \"\"\"\\\n  " + letter + "\"\"\"\n", "f.toml")).at("a").string(), letter);
}

TEST(Toml, IsMergedByKeyHoweverDeep) {
  TomlTable base = parse("a = 1\nl = [1, 2]\n[t]\nx = 1\ny.z = true\n");
  merge_over(base, parse("l = [3]\nb = 2\n[t]\nx = \"\"\ny.w = false\n"));
  EXPECT_EQ(base, parse("a = 1\nb = 2\nl = [3]\n[t]\nx = \"\"\ny = {w = false, z = true}\n"));
}

TEST(Toml, IsWrittenAsItIsRead) {
  const TomlTable table = parse(
      "plain = \"a\"\n\"odd key\" = \"q\\\"b\\\\c\\u0001\\n\"\nyes = true\nnumber = -3\nlist = [\"a\", [1, "
      "2], {k = false}]\n"
      "half = 0.5\nwhole = 1.0\n[inner]\nx = 1\n[inner.\"d.e\"]\ny = \"\xc3\xa4\"\n");
  const TomlTable again = parse(toml_text({"root", "a.b"}, table));
  EXPECT_EQ(*find(again, {"root", "a.b"})->table(), table);
}

TEST(Toml, DiffersWhereItFirstSaysSomethingElse) {
  const auto difference = [](const char* is, const char* would_be) {
    return first_difference(parse(is), parse(would_be), "r").value_or("none");
  };
  EXPECT_EQ(difference("a = 1\n", "a = 1\n"), "none");
  EXPECT_EQ(difference("a.b = false\nc = \"\"\nd = 0\ne = []\n", ""), "none") << "as good as absent";
  EXPECT_EQ(difference("", "a.b = {}\n"), "none");
  EXPECT_EQ(difference("a.b = true\n", "a.b = false\n"), "r.a.b: true, and would be absent");
  EXPECT_EQ(difference("", "a.b.c = [\"x\", 1]\n"), "r.a.b.c: absent, and would be [\"x\", 1]");
  EXPECT_EQ(difference("a = {x = 1}\n", "a = 1\n"), "r.a: a table, and would be 1");
  EXPECT_EQ(difference("a = \"x\"\nb = 1.5\n", "a = \"x\"\nb = 2.5\n"), "r.b: 1.5, and would be 2.5");
}

}  // namespace
}  // namespace ferry::kata
