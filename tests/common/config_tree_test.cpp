// SPDX-License-Identifier: Apache-2.0
#include "common/config/config_tree.h"

#include <cstring>
#include <malloc.h>
#include <new>
#include <ostream>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "tests/support/sanitizer.h"
#include "tests/support/scratch_directory.h"

namespace ferry {
namespace {

using Kind = ConfigNode::Kind;

ConfigText source(std::string text) {
  return {.file = "f.yaml", .text = std::move(text), .first_line = 1, .one_line = false};
}

ConfigNode parsed(std::string text) {
  return parse_config(source(std::move(text))).value();
}

/// The tree in one line: maps in braces, lists in brackets, quoted scalars in quotes.
std::string shown(const ConfigNode& node) {
  std::string out;
  switch (node.kind) {
    case Kind::null:
      return "~";
    case Kind::scalar:
      return node.quoted ? "'" + node.text + "'" : node.text;
    case Kind::list:
      for (const ConfigNode& item : node.items) out += (out.empty() ? "" : " ") + shown(item);
      return "[" + out + "]";
    case Kind::map:
      for (const ConfigMember& m : node.members)
        out += (out.empty() ? "" : " ") + m.key.text + ":" + shown(m.value);
      return "{" + out + "}";
  }
  return out;
}

TEST(ConfigTree, ReadsYamlAndJson) {
  EXPECT_EQ(shown(parsed("a: 1\nb: [x, 'y', ~]\nc:\n")), "{a:1 b:[x 'y' ~] c:~}");
  EXPECT_EQ(shown(parsed("{\n\t\"a\":\t[1,\t\"x\\u0041\\/\"],\n\t\"b\": {}\n}\n")), "{a:[1 'xA/'] b:{}}");
}

TEST(ConfigTree, OfAnEmptyDocumentIsNull) {
  for (const char* text : {"", "\n", "# only words\n", "---\n", "---\n...\n", "~\n", "---\n---\n"}) {
    EXPECT_EQ(parsed(text).kind, Kind::null) << text;
  }
}

TEST(ConfigTree, TakesOneDocumentAmongEmptyOnes) {
  EXPECT_EQ(shown(parsed("---\na: 1\n---\n")), "{a:1}");
  EXPECT_EQ(shown(parsed("# head\n---\n---\na: 1\n...\n")), "{a:1}");
}

TEST(ConfigTree, KnowsTheLineOfEachThing) {
  const ConfigNode root = parsed("# head\n\na: 1\nb:\n- x\n- {c: d}\n");
  EXPECT_EQ(root.find("a")->key.line, 3);
  EXPECT_EQ(root.find("b")->value.items[1].members[0].key.line, 6);
}

TEST(ConfigTree, AppliesAliases) {
  EXPECT_EQ(shown(parsed("a: &x [1, 2]\nb: *x\n")), "{a:[1 2] b:[1 2]}");
}

TEST(ConfigTree, AppliesMergeKeys) {
  EXPECT_EQ(shown(parsed("base: &x {a: 1, b: 2}\nuse:\n  <<: *x\n  b: 3\n")),
            "{base:{a:1 b:2} use:{b:3 a:1}}");
  EXPECT_EQ(shown(parsed("use:\n  b: 3\n  <<: {a: 1, b: 2}\n")), "{use:{b:3 a:1}}");
  EXPECT_EQ(shown(parsed("x: &x {a: 1}\ny: &y {a: 2, b: 2}\nuse:\n  <<: [*x, *y]\n")),
            "{x:{a:1} y:{a:2 b:2} use:{a:1 b:2}}");
  EXPECT_EQ(shown(parsed("'<<': {a: 1}\n")), "{<<:{a:1}}");
}

TEST(ConfigTree, FindsLiteralBlocksAndWhereTheyBegin) {
  const ConfigNode root = parsed("a: |\n  x\nb: \"x\\ny\"\nc: >\n  x\nd: &anchor |-\n\n  x\ne:\n  |\n  x\n");
  EXPECT_EQ(root.find("a")->value.block_line, 2);
  EXPECT_EQ(root.find("b")->value.block_line, std::nullopt);
  EXPECT_EQ(root.find("c")->value.block_line, std::nullopt);
  EXPECT_EQ(root.find("d")->value.block_line, 7);
  EXPECT_EQ(root.find("d")->value.text, "\nx");
  EXPECT_EQ(root.find("e")->value.block_line, 11);
}

struct Scalar {
  const char* text;
  bool is_string;
};
void PrintTo(const Scalar& row, std::ostream* out) {
  *out << row.text;
}

class ScalarKind : public testing::TestWithParam<Scalar> {};

TEST_P(ScalarKind, IsWhatAllReadersTakeItFor) {
  EXPECT_EQ(parsed(std::string("[") + GetParam().text + "]").items.at(0).is_string(), GetParam().is_string);
}

INSTANTIATE_TEST_SUITE_P(
    Table, ScalarKind,
    testing::Values(Scalar{"abc", true}, Scalar{"v1", true}, Scalar{"T4-1Q", true}, Scalar{"'1'", true},
                    Scalar{"\"no\"", true}, Scalar{"!!str 4", true}, Scalar{"1-2", true}, Scalar{"a1", true},
                    Scalar{"1a", true}, Scalar{"0xG", true}, Scalar{"nope", true}, Scalar{"yes", false},
                    Scalar{"No", false}, Scalar{"on", false}, Scalar{"OFF", false}, Scalar{"y", false},
                    Scalar{"true", false}, Scalar{"1", false}, Scalar{"-1", false}, Scalar{"+1", false},
                    Scalar{"010", false}, Scalar{"0o10", false}, Scalar{"0x1F", false}, Scalar{"0b1", false},
                    Scalar{"1_000", false}, Scalar{"1.5", false}, Scalar{".5", false}, Scalar{"1e3", false},
                    Scalar{"1.e3", false}, Scalar{".inf", false}, Scalar{"-.INF", false},
                    Scalar{".nan", false}, Scalar{"1:30", false}, Scalar{"2024-01-31", false}));

struct Bad {
  const char* name;
  std::string text;
  std::string message;
};
void PrintTo(const Bad& row, std::ostream* out) {
  *out << row.name;
}

class BadConfig : public testing::TestWithParam<Bad> {};

TEST_P(BadConfig, IsRefusedWithItsLine) {
  const auto node = parse_config(source(GetParam().text));
  ASSERT_FALSE(node);
  EXPECT_EQ(node.error().code, Errc::invalid_config);
  EXPECT_EQ(node.error().message, GetParam().message);
}

std::string doublings(int levels) {
  std::string text = "a0: &a0 [x, x]\n";
  for (int i = 1; i <= levels; ++i) {
    const std::string below = "*a" + std::to_string(i - 1);
    text += fmt::format("a{}: &a{} [{}, {}]\n", i, i, below, below);
  }
  return text;
}

std::string repeated(const char* text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += text;
  return out;
}

INSTANTIATE_TEST_SUITE_P(
    Table, BadConfig,
    testing::Values(
        Bad{"DuplicateKey", "a: 1\nb: 2\na: 3\n", "f.yaml:3: a: the key stands twice, first at f.yaml:1"},
        Bad{"DuplicateKeyInJson", "{\"a\": 1,\n\"a\": 1}",
            "f.yaml:2: a: the key stands twice, first at f.yaml:1"},
        Bad{"DuplicateKeyQuotedOnce", "a: 1\n'a': 3\n",
            "f.yaml:2: a: the key stands twice, first at f.yaml:1"},
        Bad{"AloneAComma", ",", "f.yaml:1: not readable as YAML: nothing can begin here"},
        Bad{"ACommaBetweenDocuments", "{\"a\": 1},\n{\"b\": 2}\n",
            "f.yaml:1: not readable as YAML: nothing can begin here"},
        Bad{"TwoDocuments", "a: 1\n---\nb: 1\n", "f.yaml:3: a second document begins here"},
        Bad{"Tag", "a: !!int '1'\n", "f.yaml:1: the tag 'tag:yaml.org,2002:int' is not understood"},
        Bad{"OwnTag", "- !secret x\n", "f.yaml:1: the tag '!secret' is not understood"},
        Bad{"KeyThatIsAMap", "? {a: b}\n: 1\n", "f.yaml:1: a key must be a single word"},
        Bad{"KeyThatIsAList", "[1, 2]: 1\n", "f.yaml:1: a key must be a single word"},
        Bad{"MergeOfAScalar", "a:\n  <<: x\n",
            "f.yaml:2: <<: only a map, or a list of maps, can be merged in"},
        Bad{"MergeOfAListOfScalars", "a:\n  <<: [x]\n",
            "f.yaml:2: <<: only a map, or a list of maps, can be merged in"},
        Bad{"TwoMerges", "a:\n  <<: {x: 1}\n  <<: {y: 1}\n", "f.yaml:3: <<: the key stands twice"},
        Bad{"UnknownAlias", "a: *x\n",
            "f.yaml:1: not readable as YAML: the referenced anchor is not defined"},
        Bad{"AliasToWhatSurroundsIt", "a: &x [*x]\n",
            "f.yaml:1: an alias to what surrounds it would go on for ever"},
        Bad{"MergeOfWhatSurroundsIt", "a: &x\n  <<: *x\n",
            "f.yaml:2: an alias to what surrounds it would go on for ever"},
        Bad{"Tab", "a:\n\tb: 1\n", "f.yaml:2: not readable as YAML: illegal map value"},
        Bad{"Indentation", "a: 1\n b: 2\n", "f.yaml:2: not readable as YAML: illegal map value"},
        Bad{"OpenQuote", "a: 'x\n", "f.yaml:1: not readable as YAML: illegal EOF in scalar"},
        Bad{"OpenDoubleQuote", "a: 1\nb: \"x\n\n", "f.yaml:2: not readable as YAML: illegal EOF in scalar"},
        Bad{"OpenBracket", "a: [1,\n", "f.yaml:1: not readable as YAML: end of sequence flow not found"},
        Bad{"DeepNesting", repeated("[", 100) + repeated("]", 100), "f.yaml:1: nested deeper than 64 levels"},
        Bad{"DeepByAnAlias",
            "a: &a " + repeated("[", 40) + repeated("]", 40) + "\nb: " + repeated("[", 40) + "*a" +
                repeated("]", 40),
            "f.yaml:2: nested deeper than 64 levels"},
        Bad{"AnchorsWithinAnchors", repeated("&a [", 40) + repeated("1,", 6000) + repeated("]", 40),
            "f.yaml:1: more than 50000 values below anchors"},
        Bad{"TheSecondDocumentIsAList", "a: 1\n---\n- b\n", "f.yaml:3: a second document begins here"},
        Bad{"OpenBrace", "{\"a\": 1", "f.yaml:1: not readable as YAML: end of map flow not found"},
        Bad{"BrokenBehindWhatIsRefused", "a: 1\na: 2\nb: [1,\n",
            "f.yaml:3: not readable as YAML: end of sequence flow not found"},
        Bad{"VeryDeepNesting", repeated("[", 100000), "f.yaml:1: more than 1000 open brackets"},
        Bad{"OneLongLine", "a: 1\nb: [" + repeated("1, ", 100000) + "1]\n",
            "f.yaml:2: more than 100000 words and punctuation marks on one line or in one list in brackets"},
        Bad{"ZeroByte", std::string("a: b\0c\n", 7), "f.yaml: not a text in UTF-8"},
        Bad{"Latin1", "a: \xe4\n", "f.yaml: not a text in UTF-8"},
        Bad{"OverlongUtf8", "a: \xc0\xaf\n", "f.yaml: not a text in UTF-8"},
        Bad{"TruncatedUtf8", "a: \xe2\x82", "f.yaml: not a text in UTF-8"},
        Bad{"AliasesOfAliases", doublings(20),
            "f.yaml:14: more than 50000 values after all aliases are applied"}),
    [](const auto& row) { return row.param.name; });

// The chart gives the agent 64 MiB, and anyone who may write a ConfigMap may fill one with a megabyte of
// this.
TEST(ConfigTree, OfAHostileTextTakesLittleMemory) {
  if (test::kAddressSanitizer) GTEST_SKIP() << "the sanitizer takes memory of its own";
  constexpr rlim_t kMost = rlim_t{24} << 20U;
  for (const char* piece : {"[", "[1,", "{a: ", "- ", "? ", "&a ", "\"\" ", "- 1\n", "a,", "[]\n", "'", "*a ",
                            "!a ", "a,\n", "[],\n", "\"\",\n", "a\n"}) {
    const std::string text = "a: [" + repeated(piece, static_cast<int>(1'000'000 / std::strlen(piece)));
    const std::string many = text.substr(4);
    for (const std::string& hostile :
         {text, many, "[" + many, "- [" + many, "a: [[" + many, "[? \"a, 'b\", " + many + "'\"",
          "['x, \"', " + many + "\"", "['x\n, \"'," + many + "\""}) {
      const pid_t child = ::fork();
      ASSERT_GE(child, 0);
      if (child == 0) {
        const struct mallinfo2 now = ::mallinfo2();
        const rlimit limit{now.arena + now.hblkhd + kMost, now.arena + now.hblkhd + kMost};
        ::setrlimit(RLIMIT_DATA, &limit);
        try {
          (void)parse_config(source(hostile));
        } catch (const std::bad_alloc&) {
          ::_exit(1);
        }
        ::_exit(0);
      }
      int status = 0;
      ASSERT_EQ(::waitpid(child, &status, 0), child);
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "of '" << piece << "'";
    }
  }
}

// The agent writes a whole configuration into one string of a JSON document.
TEST(ConfigTree, TakesALongTextInOneString) {
  const std::string text = repeated("  - {devices: [0], mode: 'x'}\\n", 40'000);
  EXPECT_EQ(parsed("{\n \"version\": 1,\n \"config\":\"" + text + "\"\n}\n").members.size(), 2U);
  EXPECT_EQ(parsed("{\"config\": \"" + text + "\"}").members.size(), 1U);
}

TEST(ConfigText, CountsLinesInTheFileThatHasIt) {
  ConfigText text = source("a: 1\na: 2\n");
  text.first_line = 10;
  EXPECT_EQ(parse_config(text).error().message, "f.yaml:11: a: the key stands twice, first at f.yaml:10");
  text.one_line = true;
  EXPECT_EQ(
      parse_config(text).error().message,
      "f.yaml:10 (line 2 of the text): a: the key stands twice, first at f.yaml:10 (line 1 of the text)");
}

TEST(ConfigText, IsReadFromAFile) {
  const test::ScratchDirectory scratch;
  scratch.file("p.yaml", "version: v1\n");
  const auto path = scratch.path() / "p.yaml";
  const auto text = read_config_text(path);
  ASSERT_TRUE(text);
  EXPECT_EQ(text->text, "version: v1\n");
  EXPECT_EQ(text->file, path.string());
}

TEST(ConfigText, IsRefusedWhereThereIsNone) {
  const test::ScratchDirectory scratch;
  const std::string missing = scratch.path() / "missing.yaml";
  const auto absent = read_config_text(missing);
  ASSERT_FALSE(absent);
  EXPECT_EQ(absent.error().code, Errc::invalid_config);
  EXPECT_EQ(absent.error().message, "read " + missing + ": No such file or directory");
  const auto directory = read_config_text(scratch.path());
  ASSERT_FALSE(directory);
  EXPECT_EQ(directory.error().code, Errc::invalid_config);
  EXPECT_EQ(directory.error().message, "read " + scratch.path().string() + ": Is a directory");
}

TEST(ConfigText, IsRefusedWhenItIsTooLarge) {
  const test::ScratchDirectory scratch;
  const std::size_t limit = std::size_t{2} * 1024 * 1024;
  scratch.file("p.yaml", std::string(limit, '#'));
  EXPECT_TRUE(read_config_text(scratch.path() / "p.yaml"));
  scratch.file("p.yaml", std::string(limit + 1, '#'));
  const auto text = read_config_text(scratch.path() / "p.yaml");
  ASSERT_FALSE(text);
  EXPECT_EQ(text.error().message, "read " + (scratch.path() / "p.yaml").string() + ": larger than 2 MiB");
}

TEST(ConfigTree, SaysHowTheIndentationIsWrong) {
  const auto hint = [](const char* text) { return parse_config(source(text)).error().hint; };
  EXPECT_EQ(hint("a: 1\n b: 2\n"),
            "its key begins 1 blank deeper than the key in the line before: keys of one map begin in the "
            "same column");
  EXPECT_EQ(hint("l:\n  - a: 1\n       b: 2\n"),
            "its key begins 3 blanks deeper than the key in the line before: keys of one map begin in the "
            "same column");
  EXPECT_EQ(hint("l:\n  - a: 1\n\n  # b\n     b:\n      c: 1\n").substr(0, 22), "its key begins 1 blank");
  EXPECT_EQ(hint("a:\n\tb: 1\n"), "indent it with blanks: YAML takes no tab there");
  EXPECT_EQ(hint("a: [\n"), "see this line and those before it for a missing quote, bracket or colon");
}

}  // namespace
}  // namespace ferry
