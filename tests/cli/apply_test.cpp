// SPDX-License-Identifier: Apache-2.0
// `ferry apply` as a user and as the systemd unit calls it.
#include <chrono>
#include <fstream>
#include <map>
#include <sstream>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "hostfs/host_writer.h"
#include "hostfs/locks.h"
#include "tests/cli/run_program.h"
#include "tests/support/must.h"
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

// hostd says the same, with the same exit status.
TEST_F(ApplyVerb, RefusesAGpuThatDoesNotWorkForTheHost) {
  kernel_.file("etc/ferry/host.yaml", "version: v2\npolicies:\n  host: [{devices: all, mode: host}]\n");
  kernel_.file("var/lib/ferry/desired.json",
               R"({"version": 2, "file": "/etc/ferry/host.yaml", "policy": "host"})");
  const std::string gpu = "0000:65:00.0";
  const auto is_refused = [&](const char* why) {
    SCOPED_TRACE(why);
    for (const bool dry : {true, false}) {
      std::vector<std::string> words = {"apply", "-f", path("etc/ferry/host.yaml")};
      if (dry) words.emplace_back("--dry-run");
      const auto said = ferry(words);
      EXPECT_EQ(said.status, 4) << said.out << said.err;
      EXPECT_THAT(said.out,
                  AllOf(HasSubstr("GPU 0 (" + gpu + "): refused\n"), HasSubstr(why), HasSubstr("hint: ")));
    }
    EXPECT_EQ(ferry({"hostd", "--once"}).status, 4);
    EXPECT_EQ(ferry({"hostd", "--dry-run"}).status, 4);
  };
  EXPECT_EQ(ferry({"apply", "-f", path("etc/ferry/host.yaml")}).status, 0);
  test::must(kernel_.write_attribute("sys/bus/pci/drivers/" + kernel_.driver_of(gpu) + "/unbind", gpu));
  is_refused("no driver has taken it: neither the host nor a VM can use it now");
  test::must(kernel_.write_attribute("sys/bus/pci/devices/" + gpu + "/driver_override", "vfio-pci"));
  EXPECT_THAT(ferry({"apply", "-f", path("etc/ferry/host.yaml"), "--dry-run"}).out,
              HasSubstr("hint: the kernel binds only vfio-pci, which its driver_override names: `echo > "));
  kernel_.add_driver({.name = "pci-stub"});
  test::must(kernel_.write_attribute("sys/bus/pci/devices/" + gpu + "/driver_override", "pci-stub"));
  test::must(kernel_.write_attribute("sys/bus/pci/drivers/pci-stub/bind", gpu));
  is_refused("pci-stub holds it: neither the host nor a VM can use it now");
  kernel_.file("sys/bus/pci/devices/" + gpu + "/config", std::string(64, '\xff'));
  is_refused("off the bus");
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

/// The card is on vfio, and its plugin runs.
class UnknownList : public ApplyVerb {
 protected:
  UnknownList() {
    kernel_.file("etc/ferry/back.yaml", "version: v2\npolicies:\n  all:\n  - {devices: all, mode: host}\n");
    for (const char* function : {"0", "1", "2", "3"}) {
      const std::string address = std::string("0000:65:00.") + function;
      if (const std::string driver = kernel_.driver_of(address); !driver.empty())
        test::must(kernel_.write_attribute("sys/bus/pci/drivers/" + driver + "/unbind", address));
      test::must(kernel_.write_attribute("sys/bus/pci/devices/" + address + "/driver_override", "vfio-pci"));
      test::must(kernel_.write_attribute("sys/bus/pci/drivers/vfio-pci/bind", address));
    }
  }
  void is_refused() {
    for (const std::vector<std::string>& verb : {std::vector<std::string>{"vfio", "unbind", "--all"},
                                                 {"vfio", "unbind", "--device", "0000:65:00.0"},
                                                 {"apply", "-f", path("etc/ferry/back.yaml")}}) {
      SCOPED_TRACE(verb.front());
      for (const bool dry : {true, false}) {
        std::vector<std::string> arguments = verb;
        if (dry) arguments.emplace_back("--dry-run");
        const auto result = ferry(arguments);
        EXPECT_EQ(result.status, 4) << result.out << result.err;
        EXPECT_THAT(result.out + result.err, HasSubstr("the device plugin runs, and its list is not known"));
      }
    }
    EXPECT_EQ(kernel_.driver_of("0000:65:00.0"), "vfio-pci");
    is_said("the device plugin runs, and its list is not known: ");
    is_a_check("plugin-list");
  }
  void is_a_check(const std::string& id) {
    for (const char* purpose : {"passthrough", "vgpu", "kubevirt", "dra"})
      EXPECT_THAT(ferry({"doctor", "--for", purpose}).out, HasSubstr("  fail     " + id + " ")) << purpose;
  }
  void is_said(const std::string& reason) {
    for (const auto& verb : {std::vector<std::string>{"status"}, {"explain", "0000:65:00.0"}}) {
      const auto result = ferry(verb);
      EXPECT_THAT(result.out, HasSubstr("use unknown"));
      EXPECT_THAT(result.out, HasSubstr(reason));
      EXPECT_THAT(result.out, testing::Not(HasSubstr("ferry vfio unbind"))) << "it is refused";
    }
  }
};

TEST_F(UnknownList, OfARunningPluginKeepsItsDevicesFromBeingTaken) {
  constexpr const char* kList = "run/ferry/plugin/advertised.json";
  const auto plugin = test::must(LivenessLock::announce(kernel_, "run/ferry/plugin/plugin.lock"));
  is_refused();  // there is none
  for (const char* torn : {"", R"({"version": 2, "state_generation": 5, "resou)"}) {
    kernel_.file(kList, torn);
    is_refused();
  }
}

TEST_F(UnknownList, OfAPluginThatHasEndedIsNoObstacle) {
  kernel_.file("run/ferry/plugin/advertised.json", "");
  kernel_.file("run/ferry/plugin/plugin.lock", "");
  EXPECT_EQ(ferry({"vfio", "unbind", "--all", "--dry-run"}).status, 0);
}

TEST_F(UnknownList, OfClaimsIsTheReasonThatIsSaid) {
  kernel_.file("run/ferry/hostd/claims.json", R"({"version": 1, "boot)");
  is_said("/run/ferry/hostd/claims.json");
  is_a_check("claims-record");
}

TEST_F(ApplyVerb, TheRecordThatKeepsEachChangeFromBeingMadeIsNamed) {
  const std::vector<std::string> bind = {"vfio", "bind", "--all", "--dry-run"};
  EXPECT_EQ(ferry(bind).status, 0);
  kernel_.file("run/ferry/hostd/stopped-services.json", R"({"version": 1, "boot)");
  EXPECT_EQ(ferry(bind).status, 1);
  for (const char* verb : {"status", "explain"}) {
    std::vector<std::string> words = {verb};
    if (words.front() == "explain") words.emplace_back("0000:65:00.0");
    EXPECT_THAT(ferry(words).out,
                HasSubstr("no driver and no vGPU is changed: /run/ferry/hostd/stopped-services.json: "));
  }
  for (const char* purpose : {"passthrough", "vgpu", "kubevirt", "dra"})
    EXPECT_THAT(ferry({"doctor", "--for", purpose}).out, HasSubstr("  fail     stopped-services "))
        << purpose;
}

/// Two GPUs, of which a policy names the second by its number.
class NumbersOfApply : public ApplyVerb {
 protected:
  static constexpr const char* kRecord = "var/lib/ferry-hostd/gpus/numbers.json";
  NumbersOfApply() {
    kernel_.add_function({.address = "0000:66:00.0", .group = 42, .driver = "nouveau"});
    kernel_.file("etc/ferry/numbers.yaml",
                 "version: v2\npolicies:\n  one:\n  - {devices: [1], mode: passthrough}\n");
    kernel_.file("var/lib/ferry/desired.json",
                 R"({"version": 2, "policy": "one", "config": "version: v2\npolicies: {one: )"
                 R"([{devices: [1], mode: passthrough}]}"})");
  }
  /// hostd has counted this one as GPU 1.
  void record(const std::string& address) {
    kernel_.file(kRecord, R"({"version": 1, "gpus": {"1": ")" + address +
                              R"("}, "policy": "version: v2\npolicies:\n  policy:\n  - devices: [1]\n)"
                              R"(    mode: passthrough\n"})");
  }
};

TEST_F(NumbersOfApply, AreHostdsInItsDryRunAndInAssert) {
  record("0000:65:00.0");
  const auto dry = ferry({"hostd", "--dry-run"});
  EXPECT_EQ(dry.status, 0) << dry.err;
  EXPECT_THAT(dry.out, HasSubstr("0000:65:00.0 (group 41): would bind"));
  EXPECT_THAT(ferry({"assert", "-f", path("etc/ferry/numbers.yaml")}).out,
              HasSubstr("(0000:65:00.0): expected passthrough"));
  record("0000:17:00.0");
  const auto gone = ferry({"hostd", "--dry-run"});
  EXPECT_EQ(gone.status, 4);
  EXPECT_THAT(gone.err, HasSubstr("GPU 1 is gone: the policy means the one at 0000:17:00.0"));
  const auto differs = ferry({"assert", "-f", path("etc/ferry/numbers.yaml")});
  EXPECT_EQ(differs.status, 3);
  EXPECT_THAT(differs.out, HasSubstr("GPU 1 is gone"));
  kernel_.file(kRecord, "{");
  EXPECT_EQ(ferry({"hostd", "--dry-run"}).status, 1);
}

TEST_F(NumbersOfApply, LeaveNoItemIdleOfWhichOneIsThere) {
  kernel_.file("etc/ferry/both.yaml",
               "version: v2\npolicies:\n  both:\n  - {devices: [0, 1], mode: passthrough}\n");
  const auto warnings = [&](const std::string& second) {
    kernel_.file(kRecord, R"({"version": 1, "gpus": {"0": "0000:17:00.0", "1": ")" + second +
                              R"("}, "policy": "version: v2\npolicies:\n  policy:\n  - devices: [0, 1]\n)"
                              R"(    mode: passthrough\n"})");
    const auto said = ferry({"assert", "-f", path("etc/ferry/both.yaml")});
    EXPECT_THAT(said.out, HasSubstr("GPU 0 is gone"));
    return said.err;
  };
  EXPECT_EQ(warnings("0000:66:00.0"), "");
  EXPECT_EQ(warnings("0000:18:00.0"),
            "warning: " + path("etc/ferry/both.yaml") + ":4: matches no GPU of this node\n");
}

TEST_F(NumbersOfApply, AreCountedAnewByApply) {
  record("0000:65:00.0");
  const auto dry = ferry({"apply", "-f", path("etc/ferry/numbers.yaml"), "--dry-run"});
  EXPECT_EQ(dry.status, 0) << dry.err;
  EXPECT_THAT(dry.err, HasSubstr("GPU 1 was 0000:65:00.0 for hostd; counted anew it is 0000:66:00.0"));
  EXPECT_THAT(dry.out, HasSubstr("0000:66:00.0 (group 42): would bind"));
  EXPECT_TRUE(kernel_.exists(kRecord));
  ferry({"apply", "-f", path("etc/ferry/policy.yaml")});
  EXPECT_TRUE(kernel_.exists(kRecord)) << "that policy has no numbers";
  kernel_.file("etc/ferry/other.yaml", "version: v2\npolicies:\n  one:\n  - {devices: [0, 1], mode: host}\n");
  ferry({"apply", "-f", path("etc/ferry/other.yaml")});
  EXPECT_TRUE(kernel_.exists(kRecord)) << "it is of another policy's numbers";
  kernel_.file("etc/ferry/wrong.yaml", "version: v2\npolicies:\n  one:\n  - {devices: [1], mode: wrong}\n");
  ferry({"apply", "-f", path("etc/ferry/wrong.yaml")});
  EXPECT_TRUE(kernel_.exists(kRecord)) << "nothing was applied";
  ferry({"apply", "-f", path("etc/ferry/numbers.yaml")});
  EXPECT_FALSE(kernel_.exists(kRecord));
  kernel_.file(kRecord, "{");
  ferry({"apply", "-f", path("etc/ferry/numbers.yaml")});
  EXPECT_FALSE(kernel_.exists(kRecord)) << "hostd cannot read it either";
}

}  // namespace
}  // namespace ferry::cli
