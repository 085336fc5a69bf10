// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/classes/desired_classes.h"

#include <ostream>
#include <string>

#include <gmock/gmock.h>

#include "api/files.h"
#include "tests/support/must.h"
#include "tests/support/scratch_directory.h"

namespace ferry::kata {
namespace {

using test::must;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr const char* kTwo =
    "version: v2\n"
    "artifactsDir: /opt/kata-classes\n"
    "runtimeClasses:\n"
    "- {name: kata-a, aliases: [kata-b], artifacts: {url: 'registry.example/a:1'}}\n"
    "- {name: kata-c, artifacts: {url: 'registry.example/c:1'}}\n";

Result<DesiredClasses> read(const std::string& text) {
  return read_desired_classes(ConfigText{.file = "w.json", .text = text});
}

DesiredClasses desired(std::vector<std::string> classes) {
  return {.generation = 3, .config = {.file = "w.json", .text = kTwo}, .classes = std::move(classes)};
}

TEST(DesiredClasses, ReadBackAsTheyWere) {
  DesiredClasses all = desired({"kata-c", "kata-a"});
  all.permitted = true;
  all.unlabelled = {"kata-old", "kata-older"};
  all.source = "ConfigMap x/\xc3\xa4";
  all.confidential_mode = ConfidentialMode::State::ppcie;
  const auto again = must(read(desired_classes_text(all)));
  EXPECT_EQ(again.generation, 3U);
  EXPECT_EQ(again.config.text, kTwo);
  EXPECT_THAT(again.classes, ElementsAre("kata-c", "kata-a"));
  EXPECT_TRUE(again.permitted);
  EXPECT_THAT(again.unlabelled, ElementsAre("kata-old", "kata-older"));
  EXPECT_EQ(again.source, all.source);
  EXPECT_EQ(again.confidential_mode, all.confidential_mode);
  const auto least =
      must(read(R"({"version": 2, "generation": 0, "config": "", "classes": [], "permitted": false})"));
  EXPECT_FALSE(least.permitted);
  EXPECT_THAT(least.unlabelled, IsEmpty());
  EXPECT_FALSE(confidential_mode_of(least).known()) << "an agent of before says nothing of it";
  EXPECT_THAT(desired_classes_text(least), Not(HasSubstr("confidential_mode")));
}

struct BadFile {
  const char* text;
  const char* message;
};
void PrintTo(const BadFile& bad, std::ostream* out) {
  *out << bad.text;
}
class BadDesiredClasses : public testing::TestWithParam<BadFile> {};

TEST_P(BadDesiredClasses, AreRefusedWithPlaceKeyAndReason) {
  const auto bad = read(GetParam().text);
  ASSERT_FALSE(bad);
  EXPECT_EQ(bad.error().code, Errc::invalid_config);
  EXPECT_THAT(bad.error().message, HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    Files, BadDesiredClasses,
    testing::Values(
        BadFile{"", "w.json:1: expected an object, found nothing"},
        BadFile{"[]", "expected an object, found a list"}, BadFile{"{\"version\": 2", "w.json:"},
        BadFile{"{}", "version: the key is missing"}, BadFile{R"({"version": 1})", "version: expected 2"},
        BadFile{R"({"version": "1"})", "version: expected 2, found the string '1'"},
        BadFile{R"({"version": 2})", "generation: the key is missing"},
        BadFile{R"({"version": 2, "generation": -1})",
                "generation: expected a number from 0 to 2^53 - 1, found -1"},
        BadFile{R"({"version": 2, "generation": 9007199254740992})",
                "generation: expected a number from 0 to 2^53 - 1, found 9007199254740992"},
        BadFile{R"({"version": 2, "generation": "1"})", "generation: expected a number"},
        BadFile{R"({"version": 2, "generation": 1})", "config: the key is missing"},
        BadFile{R"({"version": 2, "generation": 1, "config": {}})", "config: expected a string, found a map"},
        BadFile{R"({"version": 2, "generation": 1, "config": ""})", "classes: the key is missing"},
        BadFile{R"({"version": 2, "generation": 1, "config": "", "classes": "kata-a"})",
                "classes: expected a list"},
        BadFile{R"({"version": 2, "generation": 1, "config": "", "classes": [1]})",
                "classes[0]: expected the name of a handler, found 1"},
        BadFile{R"({"version": 2, "generation": 1, "config": "", "classes": ["a", "../b"]})",
                "classes[1]: expected the name of a handler"},
        BadFile{R"({"version": 2, "generation": 1, "config": "", "classes": ["a", "a"]})",
                "classes[1]: 'a' stands twice"},
        BadFile{R"({"version": 2, "generation": 1, "config": "", "classes": []})",
                "permitted: the key is missing"},
        BadFile{R"({"version": 2, "generation": 1, "config": "", "classes": [], "permitted": "true"})",
                "permitted: expected"},
        BadFile{R"({"version": 2, "generation": 1, "config": "", "classes": [], "permitted": 1})",
                "permitted: expected"},
        BadFile{R"({"version": 2, "generation": 1, "config": "", "classes": [], "permitted": true,
                    "unlabelled": {"a": 1}})",
                "unlabelled: expected a list"},
        BadFile{R"({"version": 2, "generation": 1, "config": "", "classes": [], "permitted": true,
                    "unlabelled": ["A"]})",
                "w.json:2: unlabelled[0]: expected the name of a handler"},
        BadFile{R"({"version": 2, "generation": 1, "config": "", "classes": [], "permitted": true,
                    "source": []})",
                "source: expected a string, found a list"},
        BadFile{R"({"version": 2, "generation": 1, "config": "", "classes": [], "permitted": true,
                    "confidential_mode": "unknown"})",
                "w.json:2: confidential_mode: expected on, off, devtools, ppcie or failed, found the string"},
        BadFile{R"({"version": 2, "generation": 1, "config": "", "classes": [], "permitted": true,
                    "confidential_mode": true})",
                "confidential_mode: expected on, off,"},
        BadFile{R"({"version": 2, "generation": 1, "config": "", "classes": [], "permited": true})",
                "permited: unknown key; did you mean 'permitted'?"},
        BadFile{"{\"version\": 2, \"permitted\": false,\n\"permitted\": true}", "w.json:2: permitted"}));

TEST(DesiredClassFile, HasTheDesiredClassesAndAllElse) {
  const auto both = must(desired_class_file(desired({"kata-c", "kata-a"})));
  ASSERT_EQ(both.classes.size(), 2U);
  EXPECT_EQ(both.classes[0].name, "kata-a") << "the order is the file's";
  EXPECT_EQ(both.artifacts_dir, "/opt/kata-classes");
  const auto one = must(desired_class_file(desired({"kata-c"})));
  ASSERT_EQ(one.classes.size(), 1U);
  EXPECT_EQ(one.classes[0].name, "kata-c");
  const auto none = must(desired_class_file(desired({})));
  EXPECT_THAT(none.classes, IsEmpty());
  EXPECT_EQ(none.artifacts_dir, "/opt/kata-classes");
}

TEST(DesiredClassFile, HasEachClassThatIsNamed) {
  const auto other = desired_class_file(desired({"kata-aa"}));
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code, Errc::invalid_config);
  EXPECT_THAT(other.error().message, HasSubstr("kata-aa"));
  const auto alias = desired_class_file(desired({"kata-b"}));
  ASSERT_FALSE(alias);
  EXPECT_EQ(alias.error().code, Errc::invalid_config);
  EXPECT_THAT(alias.error().message, HasSubstr("'kata-b' is an alias of the class kata-a"));
  DesiredClasses broken = desired({});
  broken.config.text = "version: v2\nruntimeClases: []\n";
  const auto unread = desired_class_file(broken);
  ASSERT_FALSE(unread);
  EXPECT_EQ(unread.error().code, Errc::invalid_config) << "though nothing of it is wanted";
}

TEST(DesiredClassesOfAHost, AreThoseOfItsFile) {
  test::ScratchDirectory scratch;
  const HostFs host{scratch.path()};
  EXPECT_FALSE(must(read_desired_classes(host)));
  scratch.file(api::kDesiredClassesFile, desired_classes_text(desired({"kata-a"})));
  const auto there = must(read_desired_classes(host));
  ASSERT_TRUE(there);
  EXPECT_THAT(there->classes, ElementsAre("kata-a"));
  scratch.file(api::kDesiredClassesFile, "{}");
  const auto bad = read_desired_classes(host);
  ASSERT_FALSE(bad);
  EXPECT_THAT(bad.error().message, HasSubstr("/var/lib/ferry/kata-classes.json:1: version"));
  scratch.file(api::kDesiredClassesFile, std::string((2 << 20) + 1, ' '));
  const auto large = read_desired_classes(host);
  ASSERT_FALSE(large);
  EXPECT_THAT(large.error().message, HasSubstr("larger than 2 MiB"));
}

}  // namespace
}  // namespace ferry::kata
