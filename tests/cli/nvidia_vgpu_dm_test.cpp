// SPDX-License-Identifier: Apache-2.0
// ferry as `nvidia-vgpu-dm`: its flags, its environment, 0 or 1, nothing on stdout.
#include <gmock/gmock.h>

#include "common/version.h"
#include "tests/cli/run_program.h"
#include "tests/support/fake_mdev.h"
#include "tests/vfio/machines.h"

namespace ferry::cli {
namespace {

using test::run_ferry_as;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* kT4 = "0000:05:00.0";
constexpr const char* kA = "5b6c0f0e-3b1d-4f0e-9a57-2f6f5f1f7a10";

/// A T4 with one T4-4Q. Its kernel does not react to another process's writes: what runs here is refused, or
/// has nothing to do.
class NvidiaVgpuDm : public testing::Test {
 protected:
  NvidiaVgpuDm() {
    kernel_.add_driver({.name = "nvidia", .ids = {"10de:1eb8"}});
    kernel_.add_function({.address = kT4, .ids = "10de:1eb8", .class_code = 0x030200, .driver = "nvidia"});
    mdev_.add_parent(kT4);
    mdev_.add_device(kT4, "nvidia-232", kA);
    kernel_.file("etc/machine-id", "0123456789abcdef0123456789abcdef\n");
    kernel_.directory("proc/1/fd");
    kernel_.file("two.yaml",
                 "version: v1\nvgpu-configs:\n"
                 "  as-it-is:\n  - {devices: all, vgpu-devices: {T4-4Q: 1}}\n"
                 "  too-many:\n  - {devices: all, vgpu-devices: {T4-4Q: 5}}\n");
    kernel_.file("one.yaml",
                 "version: v1\nvgpu-configs:\n  as-it-is:\n  - {devices: all, vgpu-devices: {T4-4Q: 1}}\n");
  }
  std::string path(const std::string& name) const { return (kernel_.root() / name).string(); }
  test::ProgramResult run(const std::vector<std::string>& arguments,
                          std::vector<std::string> environment = {}) {
    environment.push_back("HOST_ROOT=" + kernel_.root().string());
    return run_ferry_as("/usr/bin/nvidia-vgpu-dm", arguments, environment);
  }
  test::FakeKernel kernel_;
  test::FakeMdev mdev_{kernel_};
};

TEST_F(NvidiaVgpuDm, AssertsWithItsFlags) {
  const auto same = run({"assert", "-f", path("two.yaml"), "-c", "as-it-is"});
  EXPECT_EQ(same.status, 0) << same.err;
  EXPECT_THAT(same.out, IsEmpty());
  EXPECT_THAT(same.err, HasSubstr("the selected configuration is currently applied"));
  const auto other = run({"assert", "--config-file", path("two.yaml"), "--selected-config=too-many"});
  EXPECT_EQ(other.status, 1) << "not 3, which is for ferry's own name";
  EXPECT_THAT(other.out, IsEmpty());
  EXPECT_THAT(other.err, HasSubstr("GPU 0 (0000:05:00.0): expected 5 x T4-4Q, found 1 x T4-4Q"));
  EXPECT_THAT(other.err, HasSubstr("the selected configuration is not currently applied"));
}

TEST_F(NvidiaVgpuDm, TakesItsEnvironment) {
  const std::string file = "VGPU_DM_CONFIG_FILE=" + path("two.yaml");
  EXPECT_EQ(run({"assert"}, {file, "VGPU_DM_SELECTED_CONFIG=as-it-is"}).status, 0);
  EXPECT_EQ(run({"assert"}, {file, "VGPU_DM_SELECTED_CONFIG=too-many"}).status, 1);
  EXPECT_EQ(run({"assert"}, {file, "VGPU_DM_SELECTED_CONFIG=too-many", "VGPU_DM_VALID_CONFIG=true"}).status,
            0);
  EXPECT_EQ(run({"assert"}, {file, "VGPU_DM_SELECTED_CONFIG=too-many", "VGPU_DM_VALID_CONFIG=false"}).status,
            1);
  EXPECT_EQ(run({"assert", "-c", "as-it-is"}, {file, "VGPU_DM_SELECTED_CONFIG=too-many"}).status, 0)
      << "a flag goes before the environment";
}

TEST_F(NvidiaVgpuDm, AppliesWhatItsFlagsNameWithAnEnvironment) {
  const auto result = run_ferry_as(
      "nvidia-vgpu-dm",
      {"apply", "-f=" + path("two.yaml"), "-c=as-it-is", "-host-root=" + kernel_.root().string()},
      {"VGPU_DM_CONFIG_FILE=" + path("missing.yaml"), "VGPU_DM_SELECTED_CONFIG=too-many",
       "HOST_ROOT=" + path("nowhere")});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("the selected configuration is applied"));
  EXPECT_EQ(run({"assert", "-a=true", "-f=" + path("two.yaml"), "-c=too-many"}).status, 0);
}

TEST_F(NvidiaVgpuDm, AppliesWithoutAWriteWhereAllIsSo) {
  const auto result = run({"-d", "apply", "-f", path("one.yaml")}, {"VGPU_DM_SELECTED_CONFIG="});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, IsEmpty());
  EXPECT_THAT(result.err, HasSubstr("GPU 0 (0000:05:00.0): already so"));
  EXPECT_THAT(mdev_.devices_on(kT4), testing::ElementsAre(std::string("T4-4Q ") + kA));
}

TEST_F(NvidiaVgpuDm, ExitsOneWhereAGpuCannotHaveWhatIsAsked) {
  const auto result = run({"apply", "-f", path("two.yaml"), "-c", "too-many"});
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.out, IsEmpty());
  EXPECT_THAT(result.err, HasSubstr("no room for 5 x T4-4Q"));
  EXPECT_THAT(result.err, HasSubstr("the selected configuration was not applied"));
  EXPECT_THAT(mdev_.devices_on(kT4), testing::ElementsAre(std::string("T4-4Q ") + kA));
}

TEST_F(NvidiaVgpuDm, LooksAtTheFileAloneWhenAskedTo) {
  const std::vector<std::string> elsewhere = {"HOST_ROOT=" + path("nowhere")};
  const auto valid =
      run_ferry_as("nvidia-vgpu-dm", {"assert", "-a", "-f", path("two.yaml"), "-c", "too-many"}, elsewhere);
  EXPECT_EQ(valid.status, 0) << valid.err;
  EXPECT_THAT(valid.err, HasSubstr("configuration too-many is valid"));
  EXPECT_EQ(run({"assert", "--valid-config", "-f", path("one.yaml")}).status, 0);
  for (const std::vector<std::string>& more : {std::vector<std::string>{}, {"-c", "to-many"}}) {
    std::vector<std::string> command = {"assert", "-a", "-f", path("two.yaml")};
    command.insert(command.end(), more.begin(), more.end());
    const auto result = run(command);
    EXPECT_EQ(result.status, 1);
    EXPECT_THAT(result.err, HasSubstr("hint: "));
  }
}

TEST_F(NvidiaVgpuDm, ExitsOneForEveryWrongUse) {
  for (const std::vector<std::string>& command : {std::vector<std::string>{},
                                                  {"apply"},
                                                  {"asert", "-f", path("one.yaml")},
                                                  {"apply", "-a", "-f", path("one.yaml")},
                                                  {"apply", "-f", path("missing.yaml")},
                                                  {"apply", "-f", path("two.yaml")},
                                                  {"assert", "-f", path("one.yaml"), "--al"}}) {
    const auto result = run(command);
    EXPECT_EQ(result.status, 1) << testing::PrintToString(command);
    EXPECT_THAT(result.out, IsEmpty());
    EXPECT_THAT(result.err, HasSubstr("hint: "));
  }
}

TEST_F(NvidiaVgpuDm, SaysWhyWithDebug) {
  kernel_.file("more.yaml",
               "version: v1\nvgpu-configs:\n  more:\n  - {devices: all, vgpu-devices: {T4-4Q: 2}}\n");
  const std::vector<std::string> command = {"apply", "-f", path("more.yaml")};
  const auto quiet = run(command);
  EXPECT_EQ(quiet.status, 1) << "this kernel makes nothing";
  EXPECT_THAT(quiet.err, HasSubstr("create T4-4Q"));
  EXPECT_THAT(quiet.err, testing::Not(HasSubstr("asks for 2, 1 is there")));
  EXPECT_THAT(run(command, {"VGPU_DM_DEBUG=true"}).err, HasSubstr("more.yaml:4 asks for 2, 1 is there"));
}

TEST_F(NvidiaVgpuDm, SaysWhichVersionItIs) {
  EXPECT_EQ(run({"--version"}).out, std::string("ferry ") + kVersion + "\n");
  EXPECT_EQ(run({"-v"}).status, 0);
  const auto help = run({"assert", "-h"});
  EXPECT_EQ(help.status, 0);
  EXPECT_THAT(help.out, HasSubstr("VGPU_DM_CONFIG_FILE"));
}

}  // namespace
}  // namespace ferry::cli
