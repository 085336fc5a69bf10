// SPDX-License-Identifier: Apache-2.0
#include "api/desired_state.h"

#include <ostream>

#include <gmock/gmock.h>

#include "tests/support/must.h"

namespace ferry::api {
namespace {

using test::must;
using testing::HasSubstr;

Result<DesiredFile> read(const std::string& text) {
  return read_desired_file({.file = "w.json", .text = text});
}

TEST(DesiredFile, HasItsConfigurationOrNamesIt) {
  const auto with_text = must(read(
      R"({"version": 2, "generation": 12, "policy": "a", "config": "version: v2\n", "source": "a label"})"));
  EXPECT_EQ(with_text.generation, 12U);
  EXPECT_EQ(with_text.policy, "a");
  EXPECT_EQ(with_text.source, "a label");
  EXPECT_EQ(with_text.config.text, "version: v2\n");
  const auto named = must(read(R"({"version": 2, "policy": "a", "file": "/etc/ferry/policy.yaml"})"));
  EXPECT_FALSE(named.generation);
  EXPECT_EQ(named.file, "/etc/ferry/policy.yaml");
}

TEST(DesiredFile, ReadsBackWhatItWrites) {
  const DesiredFile desired{.generation = 3,
                            .policy = "no",
                            .config = ConfigText{.file = {}, .text = "a: \"b\"\n\tc\\"},
                            .source = "label x=\xc3\xa4",
                            .cc_mode = vfio::WantedMode::devtools};
  const auto again = must(read(desired_file_text(desired)));
  EXPECT_EQ(again.generation, desired.generation);
  EXPECT_EQ(again.policy, "no");
  EXPECT_EQ(again.config.text, desired.config.text);
  EXPECT_EQ(again.source, desired.source);
  EXPECT_EQ(again.cc_mode, desired.cc_mode);
}

TEST(DesiredFile, HasTheKeysInOneOrder) {
  EXPECT_EQ(desired_file_text(
                {.generation = 1, .policy = "a", .config = {.file = {}, .text = "b\n"}, .source = "c"}),
            "{\n  \"version\": 2,\n  \"generation\": 1,\n  \"policy\": \"a\",\n  \"config\": \"b\\n\",\n"
            "  \"source\": \"c\"\n}\n");
  EXPECT_EQ(desired_file_text({.generation = {}, .policy = "a", .file = "/etc/ferry/p.yaml"}),
            "{\n  \"version\": 2,\n  \"policy\": \"a\",\n  \"file\": \"/etc/ferry/p.yaml\"\n}\n");
}

struct BadFile {
  const char* text;
  const char* message;
};
void PrintTo(const BadFile& bad, std::ostream* out) {
  *out << bad.text;
}
class BadDesiredFile : public testing::TestWithParam<BadFile> {};

TEST_P(BadDesiredFile, IsRefusedWithPlaceKeyAndReason) {
  const auto read = read_desired_file({.file = "w.json", .text = GetParam().text});
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, Errc::invalid_config);
  EXPECT_THAT(read.error().message, HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    Files, BadDesiredFile,
    testing::Values(
        BadFile{"[]", "expected an object, found a list"}, BadFile{"\xff", "w.json:"},
        BadFile{R"({"version": 3, "policy": "a", "file": "/etc/ferry/a"})", "version: expected 2, found 3"},
        BadFile{"", "w.json:1: expected an object, found nothing"}, BadFile{"{\"version\": 2", "w.json:"},
        BadFile{R"({"policy": "a", "file": "/etc/ferry/a"})", "w.json:1: version: the key is missing"},
        BadFile{R"({"version": "1", "policy": "a", "file": "/etc/ferry/a"})",
                "version: expected 2, found the string '1'"},
        BadFile{R"({"version": 1, "policy": "a", "file": "/etc/ferry/a"})", "version: expected 2, found 1"},
        BadFile{R"({"version": 2, "file": "/etc/ferry/a"})", "policy: the key is missing"},
        BadFile{R"({"version": 2, "policy": "", "file": "/etc/ferry/a"})", "policy: empty"},
        BadFile{R"({"version": 2, "policy": 5, "file": "/etc/ferry/a"})",
                "policy: expected a string, found 5"},
        BadFile{R"({"version": 2, "policy": "a"})", "config: the key is missing, and so is file"},
        BadFile{R"({"version": 2, "policy": "a", "config": "x", "file": "/etc/ferry/a"})",
                "file: config is there, too; one of the two is expected"},
        BadFile{R"({"version": 2, "policy": "a", "config": {"version": "v2"}})",
                "config: expected a string, found a map"},
        BadFile{R"({"version": 2, "policy": "a", "file": "policy.yaml"})",
                "file: expected a file below /etc/ferry, found 'policy.yaml'"},
        BadFile{R"({"version": 2, "policy": "a", "file": "/etc/shadow"})",
                "file: expected a file below /etc/ferry, found '/etc/shadow'"},
        BadFile{R"({"version": 2, "policy": "a", "file": "/etc/ferry/../shadow"})",
                "file: expected a file below /etc/ferry, found '/etc/ferry/../shadow'"},
        BadFile{R"({"version": 2, "policy": "a", "file": ["/a"]})", "file: expected a string, found a list"},
        BadFile{R"({"version": 2, "policy": "a", "file": "/etc/ferry/a", "generation": -1})",
                "generation: expected a number from 0 to 2^53 - 1, found -1"},
        BadFile{R"({"version": 2, "policy": "a", "file": "/etc/ferry/a", "generation": 9007199254740992})",
                "generation: expected a number from 0 to 2^53 - 1, found 9007199254740992"},
        BadFile{R"({"version": 2, "policy": "a", "file": "/etc/ferry/a", "generation": 9223372036854775807})",
                "generation: expected a number from 0 to 2^53 - 1"},
        BadFile{
            R"({"version": 2, "policy": "a", "file": "/etc/ferry/a", "generation": 18446744073709551615})",
            "generation: expected a number from 0 to 2^53 - 1"},
        BadFile{R"({"version": 2, "policy": "a", "file": "/etc/ferry/a", "generation": "1"})",
                "generation: expected"},
        BadFile{R"({"version": 2, "policy": "a", "file": "/etc/ferry/a", "source": 1})",
                "source: expected a string, found 1"},
        BadFile{R"({"version": 2, "policy": "a", "file": "/etc/ferry/a", "cc_mode": "ppcie"})",
                "cc_mode: expected off, on or devtools, found the string 'ppcie'"},
        BadFile{R"({"version": 2, "policy": "a", "file": "/etc/ferry/a", "cc_mode": "On"})",
                "cc_mode: expected off, on or devtools, found the string 'On'"},
        BadFile{R"({"version": 2, "policy": "a", "file": "/etc/ferry/a", "cc_mode": true})",
                "cc_mode: expected off, on or devtools, found"},
        BadFile{"{\"version\": 2,\n\"polcy\": \"a\", \"file\": \"/a\"}",
                "w.json:2: polcy: unknown key; did you mean 'policy'?"},
        BadFile{"{\"version\": 2, \"policy\": \"a\",\n\"policy\": \"b\", \"file\": \"/a\"}",
                "w.json:2: policy"}));

}  // namespace
}  // namespace ferry::api
