// SPDX-License-Identifier: Apache-2.0
// ferry under the names of the programs it replaces: their flags, their environment, honest exit statuses.
#include <gmock/gmock.h>

#include "tests/cli/run_program.h"
#include "tests/vfio/machines.h"

namespace ferry::cli {
namespace {

using test::FakeKernel;
using test::run_ferry_as;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

/// Its kernel does not react to another process's writes: what runs here is refused, or has nothing to do.
class ReplacedProgram : public testing::Test {
 protected:
  ReplacedProgram() {
    test::add_host_drivers(kernel_);
    kernel_.add_driver({.name = "vfio-pci", .vfio = true});
    kernel_.directory("proc/1/fd");
  }
  std::string root() const { return kernel_.root().string(); }
  /// In a group of which a disk keeps it: refused.
  void add_gpu_beside_a_disk() {
    kernel_.add_function({.address = "0000:05:00.0", .group = 12, .driver = "nouveau"});
    kernel_.add_function({.address = "0000:06:00.0",
                          .ids = "144d:a80a",
                          .class_code = 0x010802,
                          .group = 12,
                          .driver = "nvme"});
  }
  void add_gpu_on_vfio() {
    kernel_.add_function(
        {.address = "0000:65:00.0", .group = 41, .driver = "vfio-pci", .driver_override = "vfio-pci"});
  }
  void add_switch() {
    kernel_.add_function({.address = "0000:07:00.0",
                          .ids = "10de:22a3",
                          .class_code = 0x068000,
                          .group = 13,
                          .driver = "vfio-pci"});
  }
  FakeKernel kernel_;
};

TEST_F(ReplacedProgram, VfioManageExitsOneWhenAnythingIsNotAsAsked) {
  add_gpu_beside_a_disk();
  add_gpu_on_vfio();
  const auto result = run_ferry_as("/usr/bin/vfio-manage", {"bind", "--all", "--host-root", root()});
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.out, AllOf(HasSubstr("0000:06:00.0"), HasSubstr("already so")));
}

TEST_F(ReplacedProgram, VfioManageAsksNothingOnATerminal) {
  kernel_.add_function({.address = "0000:65:00.0", .group = 41, .driver = "nouveau"});
  const auto result =
      test::run_ferry_on_terminal({"bind", "--all", "--host-root", root()}, "n\n", "vfio-manage");
  EXPECT_EQ(result.status, 1) << "this kernel binds nothing";
  EXPECT_THAT(result.out, AllOf(HasSubstr("0000:65:00.0"), Not(HasSubstr("[y/N]"))));
}

TEST_F(ReplacedProgram, VfioManageExitsNoughtWhenAllIsAsAsked) {
  add_gpu_on_vfio();
  const auto result = run_ferry_as("vfio-manage", {"bind", "-a"}, {"HOST_ROOT=" + root()});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("0000:65:00.0 (group 41): already so"));
  const auto flag = run_ferry_as("vfio-manage", {"bind", "-a", "-host-root=" + root()}, {"HOST_ROOT=/none"});
  EXPECT_EQ(flag.status, 0) << flag.err;
}

TEST_F(ReplacedProgram, VfioManageTakesSwitchesWhenTheEnvironmentSaysSo) {
  add_gpu_on_vfio();
  add_switch();
  const std::vector<std::string> command = {"bind", "--all", "--host-root", root()};
  EXPECT_THAT(run_ferry_as("vfio-manage", command).out, Not(HasSubstr("0000:07:00.0")));
  EXPECT_THAT(run_ferry_as("vfio-manage", command, {"BIND_NVSWITCHES=true"}).out, HasSubstr("0000:07:00.0"));
  EXPECT_THAT(run_ferry_as("vfio-manage", command, {"BIND_NVSWITCHES=false"}).out,
              Not(HasSubstr("0000:07:00.0")));
  EXPECT_THAT(run_ferry_as("vfio-manage", {"bind", "-d", "0000:07:00.0", "--host-root", root()}).out,
              HasSubstr("0000:07:00.0 (group 13): already so"));
}

TEST_F(ReplacedProgram, VfioManageHasNothingToDoWithoutNvidiasGpusWhateverTheEnvironmentSays) {
  kernel_.add_function({.address = "0000:06:00.0", .ids = "1002:6929", .class_code = 0x030000, .group = 30});
  for (const char* command : {"bind", "unbind"}) {
    for (const char* switches : {"BIND_NVSWITCHES=true", "BIND_NVSWITCHES=false"}) {
      const auto result = run_ferry_as("vfio-manage", {command, "--all", "--host-root", root()}, {switches});
      EXPECT_EQ(result.status, 0) << command << ' ' << switches << result.err;
      EXPECT_THAT(result.out, HasSubstr("nothing to do"));
    }
  }
}

TEST_F(ReplacedProgram, VfioManageWantsExactlyOneChoice) {
  add_gpu_on_vfio();
  for (const std::vector<std::string>& command : {std::vector<std::string>{"bind"},
                                                  {"unbind", "--all", "--device-id", "0000:65:00.0"},
                                                  {"bind", "--al"},
                                                  {"bnid"},
                                                  {},
                                                  {"bind", "-d", "65:00.0"},
                                                  {"bind", "-d", "0000:99:00.0"}}) {
    const auto result = run_ferry_as("vfio-manage", command, {"HOST_ROOT=" + root()});
    EXPECT_EQ(result.status, 1) << testing::PrintToString(command);
    EXPECT_THAT(result.err, HasSubstr("hint: "));
  }
}

// Each by its flag and by its variable. Of nvidia-vgpu-dm, whose other needs stand in its own test, too.
TEST_F(ReplacedProgram, ExitsOneWhereTheHostsRootIsNotThere) {
  const std::string nowhere = root() + "/nowhere";
  const std::string file = root() + "/file.yaml";
  kernel_.file("file.yaml", "version: v1\nvgpu-configs:\n  none: []\n");
  const std::vector<std::string> of_a_node = {"NODE_NAME=n", "NAMESPACE=gpus", "CONFIG_FILE=" + file,
                                              "DEFAULT_VGPU_CONFIG=none"};
  struct Row {
    const char* program;
    std::vector<std::string> words;
    std::string option;
    std::string variable;
  };
  for (const Row& row : {Row{"vfio-manage", {"bind", "--all"}, "--host-root", "HOST_ROOT"},
                         Row{"nvidia-vgpu-dm", {"apply", "-f", file}, "--host-root", "HOST_ROOT"},
                         Row{"nvidia-vgpu-dm", {"assert", "-f", file}, "--host-root", "HOST_ROOT"},
                         Row{"nvidia-k8s-vgpu-dm", {}, "--host-root-mount", "HOST_ROOT_MOUNT"},
                         Row{"k8s-kata-manager", {"-c", file}, "--host-root", "HOST_ROOT"}}) {
    auto by_flag = row.words;
    by_flag.insert(by_flag.end(), {row.option, nowhere});
    auto by_variable = of_a_node;
    by_variable.push_back(row.variable + "=" + nowhere);
    for (const auto& result :
         {run_ferry_as(row.program, by_flag, of_a_node), run_ferry_as(row.program, row.words, by_variable)}) {
      EXPECT_EQ(result.status, 1) << row.program;
      EXPECT_THAT(result.err, HasSubstr(row.option + " " + nowhere + ": there is no such folder"))
          << row.program;
      EXPECT_THAT(result.err, HasSubstr("hint: "));
    }
  }
  EXPECT_FALSE(kernel_.exists("nowhere"));
}

TEST_F(ReplacedProgram, DriverManagerHasNothingToDo) {
  const auto result = run_ferry_as("/usr/local/bin/driver-manager", {"uninstall_driver"},
                                   {"NODE_NAME=n1", "DRAIN_TIMEOUT_SECONDS=0s"});
  EXPECT_EQ(result.status, 0);
  EXPECT_THAT(result.err, HasSubstr("uninstall_driver is not needed"));
  EXPECT_THAT(result.out, IsEmpty());
  EXPECT_EQ(run_ferry_as("driver-manager", {"preflight_check"}).status, 0);
  // NVIDIA's program takes its flags before the command.
  const auto flags = run_ferry_as("driver-manager", {"--node-name", "n1", "--drain-timeout-seconds=5s",
                                                     "--force-reinstall", "uninstall_driver"});
  EXPECT_EQ(flags.status, 0);
  EXPECT_THAT(flags.err, HasSubstr("uninstall_driver is not needed"));
  EXPECT_THAT(run_ferry_as("driver-manager", {"--version"}).out, HasSubstr("ferry "));
  EXPECT_EQ(run_ferry_as("driver-manager", {"--version"}).status, 0);
  EXPECT_THAT(run_ferry_as("driver-manager", {"--help"}).out, HasSubstr("preflight_check"));
  EXPECT_EQ(run_ferry_as("driver-manager", {"--help"}).status, 0);
  const auto none = run_ferry_as("driver-manager", {"--node-name", "n1"});
  EXPECT_EQ(none.status, 1);
  EXPECT_THAT(none.err, HasSubstr("there is no command in '--node-name n1'"));
  EXPECT_THAT(run_ferry_as("driver-manager", {"unload", "--force"}).err,
              HasSubstr("there is no command in 'unload --force'"));
  EXPECT_EQ(run_ferry_as("driver-manager", {"unload"}).status, 1);
  EXPECT_EQ(run_ferry_as("driver-manager", {}).status, 1);
}

}  // namespace
}  // namespace ferry::cli
