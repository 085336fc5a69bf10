// SPDX-License-Identifier: Apache-2.0
#include "host/desired_state.h"

#include <gmock/gmock.h>

#include "api/files.h"
#include "tests/support/fake_kernel.h"
#include "tests/support/must.h"

namespace ferry::host {
namespace {

using test::must;
using testing::HasSubstr;

constexpr const char* kFile = api::kDesiredFile;
constexpr const char* kPolicies = "version: v2\npolicies:\n  a: [{devices: all, mode: host}]\n";

class DesiredStateTest : public testing::Test {
 protected:
  Result<std::optional<DesiredState>> read() const { return read_desired(kernel_, kFile); }
  std::string error() const { return read().error().message; }
  void carry(const std::string& config) {
    kernel_.file(kFile, api::desired_file_text({.generation = {},
                                                .policy = "a",
                                                .config = ConfigText{.file = {}, .text = config},
                                                .source = {}}));
  }
  test::FakeKernel kernel_;
};

TEST_F(DesiredStateTest, IsNothingWithoutAFile) {
  EXPECT_FALSE(must(read()));
}

TEST_F(DesiredStateTest, IsThePolicyOfThatName) {
  carry(kPolicies);
  const auto desired = must(read());
  EXPECT_EQ(desired.value_or(DesiredState()).policy.name, "a");
  EXPECT_FALSE(named_file(kernel_, kFile));
  carry("version: v1\nvgpu-configs:\n  a: [{devices: all, vgpu-devices: {T4-4Q: 1}}]\n");
  EXPECT_EQ(must(read()).value_or(DesiredState()).policy.items.at(0).mode, policy::Mode::vgpu)
      << "NVIDIA's form too";
}

TEST_F(DesiredStateTest, LetsPassOfNvidiasWhatTheirProgramDoes) {
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

TEST_F(DesiredStateTest, SaysTheLineOfACarriedText) {
  carry("version: v2\npolicies:\n  a: [{devices: all, mode: hots}]\n");
  EXPECT_THAT(error(), HasSubstr("/var/lib/ferry/desired.json:4 (line 3 of the text): policies.a[0].mode"));
}

TEST_F(DesiredStateTest, SaysWhichPoliciesThereAre) {
  carry("version: v2\npolicies:\n  aa: [{devices: all, mode: host}]\n");
  EXPECT_THAT(error(), HasSubstr("holds no policy 'a'"));
}

TEST_F(DesiredStateTest, ReadsTheFileBelowTheHostsRoot) {
  kernel_.file("etc/ferry/policy.yaml", kPolicies);
  kernel_.file(kFile, R"({"version": 2, "policy": "a", "file": "/etc/../../etc/ferry/policy.yaml"})");
  ASSERT_FALSE(read()) << "a path that leaves the root";
  EXPECT_EQ(read().error().code, Errc::invalid_config);
  kernel_.file(kFile, R"({"version": 2, "policy": "a", "file": "/etc/ferry/polici.yaml"})");
  ASSERT_FALSE(read());
  EXPECT_THAT(error(), HasSubstr("etc/ferry/polici.yaml: No such file"));
  kernel_.file("tmp/w.json", R"({"version": 2, "policy": "a", "file": "/etc/ferry/polici.yaml"})");
  const auto elsewhere = read_desired(kernel_, "tmp/w.json");
  ASSERT_FALSE(elsewhere);
  EXPECT_EQ(elsewhere.error().hint, "the key \"file\" of /tmp/w.json names it");
  kernel_.file(kFile, R"({"version": 2, "policy": "a", "file": "/etc/ferry/policy.yaml"})");
  EXPECT_EQ(must(read()).value_or(DesiredState()).policy.place, "/etc/ferry/policy.yaml:3");
  EXPECT_EQ(named_file(kernel_, kFile).value_or(""), "/etc/ferry/policy.yaml");
}

TEST_F(DesiredStateTest, TakesAConfigMap) {
  kernel_.file(kFile, R"({"version": 2, "policy": "a", "file": "/etc/ferry/cm.yaml"})");
  kernel_.file(
      "etc/ferry/cm.yaml",
      "kind: ConfigMap\ndata:\n  config.yaml: |\n    version: v2\n    policies:\n      a: [{devices: all, "
      "mode: host}]\n");
  EXPECT_EQ(must(read()).value_or(DesiredState()).policy.place, "/etc/ferry/cm.yaml:6");
}

TEST_F(DesiredStateTest, IsAnotherOneWhenTheNamedFileIs) {
  kernel_.file(kFile, R"({"version": 2, "policy": "a", "file": "/etc/ferry/p.yaml"})");
  kernel_.file("etc/ferry/p.yaml", kPolicies);
  const auto before = must(read()).value_or(DesiredState()).text;
  kernel_.file("etc/ferry/p.yaml", std::string(kPolicies) + "# once more\n");
  EXPECT_NE(must(read()).value_or(DesiredState()).text, before);
}

}  // namespace
}  // namespace ferry::host
