// SPDX-License-Identifier: Apache-2.0
// `ferry hostd` as a user and as the systemd unit calls it.
#include <csignal>
#include <fstream>
#include <sstream>
#include <string>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "tests/cli/run_program.h"
#include "tests/support/must.h"
#include "tests/vfio/machines.h"

namespace ferry::cli {
namespace {

using test::run_ferry;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class HostdVerb : public testing::Test {
 protected:
  HostdVerb() {
    test::add_host_drivers(kernel_);
    kernel_.add_driver({.name = "vfio-pci", .vfio = true});
    test::add_four_function_card(kernel_);
    kernel_.file("etc/machine-id", "0123456789abcdef0123456789abcdef\n");
    kernel_.directory("proc/1/fd");
    kernel_.file("etc/ferry/policy.yaml",
                 "version: v2\npolicies:\n  all: [{devices: all, mode: passthrough}]\n"
                 "  none: [{devices: all, mode: host}]\n");
  }
  void want(const std::string& policy) {
    kernel_.file("var/lib/ferry/desired.json",
                 R"({"version": 2, "file": "/etc/ferry/policy.yaml", "policy": ")" + policy + "\"}");
  }
  test::ProgramResult ferry(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"--host-root", kernel_.root().string(), "hostd"});
    return run_ferry(arguments);
  }
  nlohmann::json state() const {
    return nlohmann::json::parse(kernel_.read_file("run/ferry/status.json").value_or(""), nullptr, false);
  }
  test::FakeKernel kernel_;
};

TEST_F(HostdVerb, SaysWhatItWouldDoAndWritesNothing) {
  want("all");
  const auto result = ferry({"--dry-run"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("to vfio:\n0000:65:00.0 (group 41): would bind"));
  EXPECT_FALSE(kernel_.exists("run/ferry/status.json"));
  kernel_.remove("var/lib/ferry/desired.json");
  const auto nothing = ferry({"--dry-run"});
  EXPECT_EQ(nothing.status, 0);
  EXPECT_THAT(nothing.out, IsEmpty());
  EXPECT_THAT(nothing.err, HasSubstr("there is no /var/lib/ferry/desired.json: there is no desired state"));
}

TEST_F(HostdVerb, SaysOnceHowTheNodeIs) {
  want("none");
  EXPECT_EQ(ferry({"--once"}).status, 0);
  EXPECT_EQ(state()["phase"], "ready");
  EXPECT_EQ(state()["accelerators"][0]["desired"], "host");
}

TEST_F(HostdVerb, WritesTheFilesOfTheGpuOperatorIfAsked) {
  for (const char* function : {"0000:65:00.0", "0000:65:00.1", "0000:65:00.2", "0000:65:00.3"}) {
    test::must(
        kernel_.write(std::string("sys/bus/pci/devices/") + function + "/driver_override", "vfio-pci"));
    if (const std::string driver = kernel_.driver_of(function); !driver.empty())
      test::must(kernel_.write("sys/bus/pci/drivers/" + driver + "/unbind", function));
    test::must(kernel_.write("sys/bus/pci/drivers/vfio-pci/bind", function));
  }
  want("all");
  EXPECT_EQ(ferry({"--once"}).status, 0);
  EXPECT_FALSE(kernel_.exists("run/nvidia"));
  EXPECT_EQ(ferry({"--once", "--validations"}).status, 0);
  EXPECT_EQ(kernel_.read_file("run/nvidia/validations/workload-type").value_or(""), "vm-passthrough\n");
  EXPECT_TRUE(kernel_.exists("run/nvidia/validations/vfio-pci-ready"));
  want("none");
  ferry({"--once", "--validations"});
  EXPECT_FALSE(kernel_.exists("run/nvidia/validations/workload-type"));
  EXPECT_FALSE(kernel_.exists("run/nvidia/validations/vfio-pci-ready"));
}

TEST_F(HostdVerb, TakesOtherFiles) {
  kernel_.file("tmp/w.json", R"({"version": 2, "file": "/etc/ferry/policy.yaml", "policy": "none"})");
  EXPECT_EQ(ferry({"--once", "--wanted", "/tmp/w.json", "--state", "/tmp/s.json"}).status, 0);
  EXPECT_TRUE(kernel_.exists("tmp/s.json"));
}

TEST_F(HostdVerb, GivesTheAgentItsFoldersBeforeItLooksAtTheNode) {
  want("none");
  kernel_.file("opt/ferry/kata/.ferry/a/record.json", "{}");
  kernel_.file("opt/ferry/kata/local/configuration.toml", "a person's");
  // Only root can give a file to a group that it is not in.
  const gid_t group = ::geteuid() == 0 ? 64'711 : ::getegid();
  const auto shown = [&](const char* file) {
    struct stat status {};
    EXPECT_EQ(::stat((kernel_.root() / file).c_str(), &status), 0) << file;
    return std::pair(status.st_gid, status.st_mode & 07777U);
  };
  const std::vector<std::string> words = {"--host-root=" + kernel_.root().string(),
                                          "--log-level=info",
                                          "hostd",
                                          "--once",
                                          "--agent-group=" + std::to_string(group),
                                          "--agent-tree=/opt/ferry/kata"};
  const auto first = run_ferry(words);
  EXPECT_EQ(first.status, 0) << first.err;
  EXPECT_EQ(shown("var/lib/ferry"), std::pair(group, 02775U));
  EXPECT_EQ(shown("opt/ferry/kata/.ferry"), std::pair(group, 02775U));
  EXPECT_EQ(shown("opt/ferry/kata").second & 0022U, 0U) << "the folder above stays root's";
  EXPECT_EQ(shown("var/lib/ferry/agent.lock").second & 0660U, 0660U);
  EXPECT_EQ(shown("opt/ferry/kata/.ferry/a/record.json").second & 0060U, 0060U);
  for (const char* const file : {"opt/ferry/kata/local", "opt/ferry/kata/local/configuration.toml"})
    EXPECT_EQ(shown(file).second & 0020U, 0U) << file;
  EXPECT_EQ(shown("var/lib/ferry/desired.json").second & 0020U, 0U) << "a person's stays a person's";
  EXPECT_THAT(first.err, HasSubstr("/var/lib/ferry: the folder is given to group"));
  EXPECT_THAT(run_ferry(words).err, Not(HasSubstr("given to group"))) << "the second time nothing is written";
  EXPECT_EQ(ferry({"--once", "--agent-tree", "/opt/ferry/kata"}).status, 2) << "to which group?";
  EXPECT_THAT(ferry({"--once", "--agent-folder", "/etc/nfd"}).err,
              HasSubstr("start the agent with --feature-labels=nfd"));
  EXPECT_EQ(ferry({"--once", "--agent-group", "0"}).status, 2) << "an agent that is root needs none of it";
}

TEST_F(HostdVerb, ListensForClaimsInAFolderOfTheirGroup) {
  const gid_t group = ::geteuid() == 0 ? 64'712 : ::getegid();
  const std::string number = std::to_string(group);
  test::RunningProgram program(
      "ferry", {"--host-root", kernel_.root().string(), "hostd", "--dra-user", "64712", "--dra-group", number,
                "--dra-folder", "/var/lib/kubelet/plugins/x"});
  EXPECT_TRUE(program.until([&] { return kernel_.exists("run/ferry/claims/hostd.sock"); }));
  struct stat status {};
  EXPECT_EQ(::stat((kernel_.root() / "run/ferry/claims").c_str(), &status), 0);
  EXPECT_EQ(std::pair(status.st_gid, status.st_mode & 07777U), std::pair(group, 0750U));
  for (const char* const folder : {"run/ferry/dra", "var/lib/kubelet/plugins/x"}) {
    EXPECT_EQ(::stat((kernel_.root() / folder).c_str(), &status), 0) << folder;
    EXPECT_EQ(std::pair(status.st_gid, status.st_mode & 07777U), std::pair(group, 02775U)) << folder;
  }
  const std::vector<std::vector<std::string>> halves = {{"--dra-user", "64712"},
                                                        {"--dra-group", number},
                                                        {"--dra-user", "0", "--dra-group", number},
                                                        {"--dra-folder", "/x"}};
  for (const std::vector<std::string>& half : halves) {
    std::vector<std::string> words = {"--once"};
    words.insert(words.end(), half.begin(), half.end());
    EXPECT_EQ(ferry(words).status, 2);
  }
}

TEST_F(HostdVerb, RefusesANameOfADeviceClassThatThePluginHasToo) {
  kernel_.add_driver({.name = "nvidia"});
  for (const char* address : {"0000:17:00.0", "0000:18:00.0"})
    kernel_.add_function({.address = address,
                          .ids = "10de:26b9",
                          .class_code = 0x030200,
                          .group = address[6] == '7' ? 17U : 18U,
                          .driver = "nvidia"});
  kernel_.file("etc/ferry/policy.yaml",
               "version: v2\npolicies:\n  all:\n"
               "  - {address: \"0000:17:00.0\", allocation: dra}\n"
               "  - {address: \"0000:18:00.0\", mode: passthrough}\n");
  want("all");
  const std::vector<std::string> plain = {"--once", "--class", "nvidia.com/AD102GL_L40S=10de:26b9"};
  EXPECT_NE(ferry(plain).status, 0);
  EXPECT_EQ(
      state()["error"]["message"],
      "nvidia.com/AD102GL_L40S has two owners: a DeviceClass, for claims of 0000:17:00.0, and the device "
      "plugin, for 0000:18:00.0");
  EXPECT_EQ(kernel_.driver_of("0000:18:00.0"), "nvidia");
  const auto preview = ferry({"--dry-run", "--class", "nvidia.com/AD102GL_L40S=10de:26b9"});
  EXPECT_EQ(preview.status, 4);
  EXPECT_THAT(preview.err, HasSubstr("two owners"));
  std::vector<std::string> aliased = plain;
  aliased.insert(aliased.end(), {"--alias", "10de:26b9=l40s"});
  // These files bind no GPU: the attempt shows that the policy is not refused.
  EXPECT_THAT(ferry(aliased).err, AllOf(HasSubstr("0000:18:00.0"), Not(HasSubstr("two owners"))));
  aliased[2] = "nvidia.com/l40s=10de:26b9";
  EXPECT_THAT(ferry(aliased).err, HasSubstr("two owners")) << "the alias is the class's name";
  std::vector<std::string> shaped = plain;
  shaped.insert(shaped.end(), {"--name-template", "vm-{name}"});
  EXPECT_THAT(ferry(shaped).err, Not(HasSubstr("two owners")));

  for (const char* wrong :
       {"nvidia.com/AD102GL_L40S", "=10de:26b9", "AD102GL_L40S=10de:26b9", "nvidia.com/A="}) {
    const auto result = ferry({"--once", "--class", wrong});
    EXPECT_EQ(result.status, 2) << wrong;
    EXPECT_THAT(result.err, HasSubstr("not of the form RESOURCE=DEVICE")) << wrong;
  }
  EXPECT_EQ(ferry({"--once", "--alias", "10de:26b9=l40s"}).status, 2) << "of which class?";
}

TEST_F(HostdVerb, ExitsTwoForAFileThatItCannotRead) {
  want("nnone");
  const auto result = ferry({"--once"});
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err, HasSubstr("holds no policy 'nnone'; did you mean 'none'?"));
  EXPECT_THAT(std::string(state()["error"]["message"]), HasSubstr("no policy 'nnone'"));
  EXPECT_EQ(ferry({"--dry-run"}).status, 2);
}

TEST_F(HostdVerb, PromisesNoKataHandlersWhereNobodyIsAsked) {
  const char* const promise = R"({"version": 2, "handlers": [{"name": "kata-gpu"}]})";
  const std::vector<std::string> hostd = {"--host-root", kernel_.root().string(), "hostd"};
  for (const bool asked : {true, false}) {
    kernel_.file("run/ferry/kata.json", promise);
    kernel_.remove("run/ferry/status.json");
    std::vector<std::string> words = hostd;
    if (asked) words.insert(words.end(), {"--cri-socket", "/run/containerd/containerd.sock"});
    test::RunningProgram program("ferry", words);
    EXPECT_TRUE(program.until([&] { return kernel_.exists("run/ferry/status.json"); }));
    if (asked)
      EXPECT_TRUE(kernel_.exists("run/ferry/kata.json")) << "what does not answer may be starting";
    else
      EXPECT_TRUE(program.until([&] { return !kernel_.exists("run/ferry/kata.json"); }));
    EXPECT_EQ(program.end_by(SIGTERM), 0);
  }
}

TEST_F(HostdVerb, ObeysTheFileOfKatasClassesWhereItIsAskedTo) {
  const auto without = ferry({"--kata", "--once"});
  EXPECT_EQ(without.status, 2);
  EXPECT_THAT(without.err, HasSubstr("--cri-socket"));
  kernel_.file("var/lib/ferry/kata-classes.json",
               R"({"version": 2, "generation": 7, "config": "", "classes": [], "permitted": true})");
  const auto said = [&] { return kernel_.read_file("run/ferry/kata.json").value_or(""); };
  test::RunningProgram program("ferry", {"--host-root", kernel_.root().string(), "hostd", "--cri-socket",
                                         "/run/containerd/containerd.sock", "--kata"});
  EXPECT_TRUE(program.until([&] { return said().find("\"generation\": 7") != std::string::npos; }));
  EXPECT_THAT(said(), HasSubstr("does not answer"));
  kernel_.file("var/lib/ferry/kata-classes.json", "{");
  EXPECT_TRUE(program.until([&] { return said().find("kata-classes.json:1") != std::string::npos; }))
      << "the watch reports the file";
  EXPECT_EQ(program.end_by(SIGTERM), 0);
}

TEST_F(HostdVerb, IsWhatTheUnitCalls) {
  std::ifstream unit(std::string(FERRY_CONFIGS) + "/systemd/ferry-hostd.service");
  const std::string key = "ExecStart=";
  std::string line;
  while (std::getline(unit, line) && !line.starts_with(key)) {
  }
  ASSERT_TRUE(line.starts_with(key));
  std::istringstream call(line.substr(key.size()));
  std::string word;
  call >> word;
  EXPECT_EQ(word, "/usr/bin/ferry");
  std::vector<std::string> arguments = {"--host-root", kernel_.root().string()};
  while (call >> word) arguments.push_back(word);
  arguments.emplace_back("--dry-run");
  want("all");
  const auto result = run_ferry(arguments);
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("to vfio:"));
}

}  // namespace
}  // namespace ferry::cli
