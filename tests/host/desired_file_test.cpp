// SPDX-License-Identifier: Apache-2.0
#include "host/desired_file.h"

#include <ostream>

#include <gmock/gmock.h>

#include "tests/support/fake_kernel.h"
#include "tests/support/must.h"

namespace ferry::host {
namespace {

using test::must;
using testing::HasSubstr;

constexpr const char* kFile = "var/lib/ferry/desired.json";
constexpr const char* kPolicies = "version: v2\npolicies:\n  a: [{devices: all, mode: host}]\n";

Result<DesiredFile> read(const std::string& text) {
  return read_desired_file({.file = "w.json", .text = text});
}

TEST(DesiredFile, CarriesItsConfigurationOrNamesIt) {
  const auto carried = must(read(
      R"({"version": 2, "generation": 12, "policy": "a", "config": "version: v2\n", "source": "a label"})"));
  EXPECT_EQ(carried.generation, 12U);
  EXPECT_EQ(carried.policy, "a");
  EXPECT_EQ(carried.source, "a label");
  EXPECT_EQ(std::get<ConfigText>(carried.config).text, "version: v2\n");
  const auto named = must(read(R"({"version": 2, "policy": "a", "file": "/etc/ferry/policy.yaml"})"));
  EXPECT_FALSE(named.generation);
  EXPECT_EQ(std::get<std::filesystem::path>(named.config), "/etc/ferry/policy.yaml");
}

TEST(DesiredFile, ReadsBackWhatItWrites) {
  const DesiredFile desired{.generation = 3,
                            .policy = "no",
                            .config = ConfigText{.file = {}, .text = "a: \"b\"\n\tc\\"},
                            .source = "label x=\xc3\xa4"};
  const auto again = must(read(desired_file_text(desired)));
  EXPECT_EQ(again.generation, desired.generation);
  EXPECT_EQ(again.policy, "no");
  EXPECT_EQ(std::get<ConfigText>(again.config).text, std::get<ConfigText>(desired.config).text);
  EXPECT_EQ(again.source, desired.source);
}

struct BadFile {
  const char* text;
  const char* message;
};
void PrintTo(const BadFile& bad, std::ostream* out) {
  *out << bad.text;
}
class BadWantedFile : public testing::TestWithParam<BadFile> {};

TEST_P(BadWantedFile, IsRefusedWithPlaceKeyAndReason) {
  const auto read = ferry::host::read_desired_file({.file = "w.json", .text = GetParam().text});
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, Errc::invalid_config);
  EXPECT_THAT(read.error().message, HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    Files, BadWantedFile,
    testing::Values(
        BadFile{"[]", "expected an object, found a list"},
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
                "file: stands beside config; one of the two is expected"},
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
                "generation: expected a number from 0 on, found -1"},
        BadFile{R"({"version": 2, "policy": "a", "file": "/etc/ferry/a", "generation": "1"})",
                "generation: expected"},
        BadFile{R"({"version": 2, "policy": "a", "file": "/etc/ferry/a", "source": 1})",
                "source: expected a string, found 1"},
        BadFile{"{\"version\": 2,\n\"polcy\": \"a\", \"file\": \"/a\"}",
                "w.json:2: polcy: unknown key; did you mean 'policy'?"},
        BadFile{"{\"version\": 2, \"policy\": \"a\",\n\"policy\": \"b\", \"file\": \"/a\"}",
                "w.json:2: policy"}));

class WantedTest : public testing::Test {
 protected:
  Result<std::optional<DesiredState>> read() const { return read_desired(kernel_, kFile); }
  std::string error() const { return read().error().message; }
  void carry(const std::string& config) {
    kernel_.file(kFile, desired_file_text({.generation = {},
                                           .policy = "a",
                                           .config = ConfigText{.file = {}, .text = config},
                                           .source = {}}));
  }
  test::FakeKernel kernel_;
};

TEST_F(WantedTest, IsNothingWithoutAFile) {
  EXPECT_FALSE(must(read()));
}

TEST_F(WantedTest, IsThePolicyOfThatName) {
  carry(kPolicies);
  const auto desired = must(read());
  EXPECT_EQ(desired.value_or(DesiredState()).policy.name, "a");
  EXPECT_FALSE(named_file(kernel_, kFile));
  carry("version: v1\nvgpu-configs:\n  a: [{devices: all, vgpu-devices: {T4-4Q: 1}}]\n");
  EXPECT_EQ(must(read()).value_or(DesiredState()).policy.items.at(0).mode, policy::Mode::vgpu)
      << "NVIDIA's form too";
}

TEST_F(WantedTest, LetsPassOfNvidiasWhatTheirProgramDoes) {
  const std::string twice =
      "version: v1\nvgpu-configs:\n  a:\n  - devices: all\n    devices: all\n    vgpu-devices: {T4-4Q: 1}\n";
  carry(twice);
  EXPECT_FALSE(read());
  EXPECT_THAT(must(read_desired(kernel_, kFile, Reading::lenient)).value_or(DesiredState()).warnings,
              testing::ElementsAre(HasSubstr("line 5 of the text")));
  kernel_.file("etc/ferry/profiles.yaml", twice);
  kernel_.file(kFile, R"({"version": 2, "policy": "a", "file": "/etc/ferry/profiles.yaml"})");
  EXPECT_FALSE(read());
  EXPECT_THAT(must(read_desired(kernel_, kFile, Reading::lenient)).value_or(DesiredState()).warnings,
              testing::ElementsAre(HasSubstr("/etc/ferry/profiles.yaml:5")));
}

TEST_F(WantedTest, SaysTheLineOfACarriedText) {
  carry("version: v2\npolicies:\n  a: [{devices: all, mode: hots}]\n");
  EXPECT_THAT(error(), HasSubstr("/var/lib/ferry/desired.json:4 (line 3 of the text): policies.a[0].mode"));
}

TEST_F(WantedTest, SaysWhichPoliciesThereAre) {
  carry("version: v2\npolicies:\n  aa: [{devices: all, mode: host}]\n");
  EXPECT_THAT(error(), HasSubstr("holds no policy 'a'"));
}

TEST_F(WantedTest, ReadsTheFileBelowTheHostsRoot) {
  kernel_.file("etc/ferry/policy.yaml", kPolicies);
  kernel_.file(kFile, R"({"version": 2, "policy": "a", "file": "/etc/../../etc/ferry/policy.yaml"})");
  ASSERT_FALSE(read()) << "a path that leaves the root";
  EXPECT_EQ(read().error().code, Errc::invalid_config);
  kernel_.file(kFile, R"({"version": 2, "policy": "a", "file": "/etc/ferry/polici.yaml"})");
  ASSERT_FALSE(read());
  EXPECT_THAT(error(), HasSubstr("etc/ferry/polici.yaml: No such file"));
  kernel_.file(kFile, R"({"version": 2, "policy": "a", "file": "/etc/ferry/policy.yaml"})");
  EXPECT_EQ(must(read()).value_or(DesiredState()).policy.place, "/etc/ferry/policy.yaml:3");
  EXPECT_EQ(named_file(kernel_, kFile).value_or(""), "/etc/ferry/policy.yaml");
}

TEST_F(WantedTest, TakesAConfigMap) {
  kernel_.file(kFile, R"({"version": 2, "policy": "a", "file": "/etc/ferry/cm.yaml"})");
  kernel_.file(
      "etc/ferry/cm.yaml",
      "kind: ConfigMap\ndata:\n  config.yaml: |\n    version: v2\n    policies:\n      a: [{devices: all, "
      "mode: host}]\n");
  EXPECT_EQ(must(read()).value_or(DesiredState()).policy.place, "/etc/ferry/cm.yaml:6");
}

TEST_F(WantedTest, IsAnotherOneWhenTheNamedFileIs) {
  kernel_.file(kFile, R"({"version": 2, "policy": "a", "file": "/etc/ferry/p.yaml"})");
  kernel_.file("etc/ferry/p.yaml", kPolicies);
  const auto before = must(read()).value_or(DesiredState()).text;
  kernel_.file("etc/ferry/p.yaml", std::string(kPolicies) + "# once more\n");
  EXPECT_NE(must(read()).value_or(DesiredState()).text, before);
}

}  // namespace
}  // namespace ferry::host
