// SPDX-License-Identifier: Apache-2.0
// `ferry apply` as a user and as the systemd unit calls it.
#include <chrono>
#include <fstream>
#include <map>
#include <sstream>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "hostfs/host_writer.h"
#include "tests/cli/run_program.h"
#include "tests/vfio/machines.h"

namespace ferry::cli {
namespace {

using test::run_ferry;
using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class ApplyVerb : public testing::Test {
 protected:
  ApplyVerb() {
    test::add_host_drivers(kernel_);
    kernel_.add_driver({.name = "vfio-pci", .vfio = true});
    test::add_four_function_card(kernel_);
    kernel_.file("etc/machine-id", "0123456789abcdef0123456789abcdef\n");
    kernel_.directory("proc/1/fd");
    kernel_.file("etc/ferry/policy.yaml",
                 "version: v2\npolicies:\n  all:\n  - {devices: all, mode: passthrough}\n");
  }
  std::string path(const std::string& name) const { return (kernel_.root() / name).string(); }
  test::ProgramResult ferry(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"--host-root", kernel_.root().string()});
    return run_ferry(arguments);
  }
  test::FakeKernel kernel_;
};

TEST_F(ApplyVerb, SaysWhatItWouldDo) {
  const auto result = ferry({"apply", "-f", path("etc/ferry/policy.yaml"), "--dry-run"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, Not(HasSubstr("vGPU")));
  EXPECT_THAT(result.out, AllOf(HasSubstr("to vfio:\n0000:65:00.0 (group 41): would bind"),
                                HasSubstr("bind 0000:65:00.0 to vfio-pci")));
  const auto json = ferry({"apply", "-f", path("etc/ferry/policy.yaml"), "--dry-run", "-o", "json"});
  const auto document = nlohmann::json::parse(json.out);
  EXPECT_EQ(document.at("policy"), "all");
  EXPECT_EQ(document.at("given_away").at("results").at(0).at("devices").at(0), "0000:65:00.0");
  EXPECT_THAT(document.at("given_back").at("results"), IsEmpty());
}

TEST_F(ApplyVerb, SaysWhyAGpuHasNothingToDo) {
  kernel_.file("one.yaml",
               "version: v2\npolicies:\n  claims:\n  - {devices: all, allocation: dra}\n"
               "  none:\n  - {devices: [7], mode: host}\n  host:\n  - {devices: all, mode: host}\n");
  const auto said = [&](const char* policy) {
    return ferry({"apply", "-f", path("one.yaml"), "-c", policy, "--dry-run"}).out;
  };
  EXPECT_THAT(said("claims"), HasSubstr("GPU 0 (0000:65:00.0): for ResourceClaims\n"));
  EXPECT_THAT(said("none"), HasSubstr("GPU 0 (0000:65:00.0): skipped: not asked for\n"));
  EXPECT_THAT(said("host"), HasSubstr("GPU 0 (0000:65:00.0): already so\n"));
}

TEST_F(ApplyVerb, ExitsFourWhenAGpuIsRefused) {
  kernel_.add_function(
      {.address = "0000:66:00.0", .ids = "144d:a80a", .class_code = 0x010802, .group = 41, .driver = "nvme"});
  const auto result = ferry({"apply", "-f", path("etc/ferry/policy.yaml"), "--dry-run"});
  EXPECT_EQ(result.status, 4);
  EXPECT_THAT(result.out, HasSubstr("0000:66:00.0"));
}

TEST_F(ApplyVerb, RefusesABadPolicyBeforeItLooksAtTheHost) {
  kernel_.file("bad.yaml", "version: v2\npolicies:\n  all:\n  - {devices: all, mode: passtrough}\n");
  const auto result = ferry({"apply", "-f", path("bad.yaml")});
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err, HasSubstr("bad.yaml:4: policies.all[0].mode: expected host, passthrough or vgpu"));
  EXPECT_EQ(ferry({"apply", "-f", path("missing.yaml")}).status, 2);
}

// What stands in the examples and in the unit is what the program takes.
TEST_F(ApplyVerb, TakesTheExamplesAndTheUnitsCommand) {
  const std::string example = std::string(FERRY_CONFIGS) + "/examples/policy.yaml";
  for (const char* name :
       {"passthrough", "mixed", "by-model", "by-place", "one-board", "tuned", "several-sizes", "by-claims"}) {
    const auto result = ferry({"apply", "-f", example, "-c", name, "--dry-run"});
    EXPECT_NE(result.status, 2) << result.err;
  }
  std::ifstream unit(std::string(FERRY_CONFIGS) + "/systemd/ferry-apply.service");
  std::vector<std::string> command;
  for (std::string line; std::getline(unit, line);) {
    constexpr std::string_view kStart = "ExecStart=/usr/bin/ferry ";
    if (!line.starts_with(kStart)) continue;
    std::istringstream words(line.substr(kStart.size()));
    for (std::string word; words >> word;) {
      if (!word.starts_with('$')) command.push_back(word.starts_with('/') ? path(word.substr(1)) : word);
    }
  }
  ASSERT_THAT(command, Contains("apply"));
  command.emplace_back("--dry-run");
  EXPECT_EQ(ferry(command).status, 0);
}

TEST_F(ApplyVerb, IsNotKilledByItsUnitWhileItWaitsForADriverThatHangs) {
  std::ifstream unit(std::string(FERRY_CONFIGS) + "/systemd/ferry-apply.service");
  std::map<std::string, std::chrono::seconds> patience;
  for (std::string line; std::getline(unit, line);) {
    const auto key = line.substr(0, line.find('='));
    if (key.starts_with("Timeout"))
      patience[key] = std::chrono::seconds(std::stoi(line.substr(key.size() + 1)));
  }
  constexpr int kActsInARow = 4;  // modules, the way there, the way back, services that start again
  EXPECT_GT(patience["TimeoutStartSec"], kActsInARow * kWriteDeadline);
  EXPECT_GT(patience["TimeoutStopSec"], kActsInARow * kWriteDeadline) << "it ends first what it has begun";
}

}  // namespace
}  // namespace ferry::cli
