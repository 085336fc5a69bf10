// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "cli/verbs/kata_inputs.h"
#include "hostfs/host_fs.h"
#include "tests/kata-manager/stub_programs.h"
#include "tests/support/must.h"
#include "tests/support/scratch_directory.h"

namespace ferry::cli {
namespace {

using test::must;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kUnit = "containerd.service";
constexpr const char* kUnitFile = "lib/systemd/system/containerd.service";
constexpr const char* kDropIn = "etc/systemd/system/containerd.service.d/own.conf";
constexpr const char* kSystemctl = "/usr/bin/systemctl";

/// What a restart would do, by what systemd says of the unit and what its files say.
class RestartOfAUnit : public testing::Test {
 protected:
  void says(const std::string& text) {
    programs.programs[kSystemctl] = [text](const std::vector<std::string>&) {
      return Result<std::string>(text);
    };
  }
  std::string harm() { return restart_of_unit(host, programs, kUnit)->harm().value_or("none"); }
  test::ScratchDirectory scratch;
  HostFs host{scratch.path()};
  test::StubPrograms programs;
};

TEST_F(RestartOfAUnit, EndsPodsUnlessItsStopLeavesTheirShimsAlone) {
  scratch.file(kUnitFile, "[Service]\nKillMode=process\n");
  for (const char* mode : {"process", "none"}) {
    says(std::string("KillMode=") + mode + "\nNeedDaemonReload=no\nLoadState=loaded\n");
    EXPECT_EQ(harm(), "none") << mode;
  }
  for (const char* mode : {"control-group", "mixed"}) {
    says(std::string("KillMode=") + mode + "\nNeedDaemonReload=no\nLoadState=loaded\n");
    EXPECT_THAT(harm(), HasSubstr(std::string("containerd.service has KillMode=") + mode))
        << "what systemd has read counts, not the file";
  }
  EXPECT_EQ(programs.asked.back(),
            "/usr/bin/systemctl show -p LoadState -p KillMode -p NeedDaemonReload containerd.service");
}

TEST_F(RestartOfAUnit, IsOfWhatSystemdHasNotReadYet) {
  says("LoadState=loaded\nKillMode=process\nNeedDaemonReload=yes\n");
  EXPECT_THAT(harm(), HasSubstr("containerd.service was changed, and systemd has not read it since"));
}

TEST_F(RestartOfAUnit, IsKnownByTheFilesWhereSystemdCannotBeAsked) {
  EXPECT_THAT(harm(), HasSubstr("has no unit file"));
  scratch.file(kUnitFile, "[Service]\nExecStart=/usr/bin/containerd\n");
  EXPECT_THAT(harm(), HasSubstr("KillMode=control-group")) << "systemd's own value";
  scratch.file(kDropIn, "[Service]\nKillMode=process\n");
  EXPECT_EQ(harm(), "none");
  says("LoadState=not-found\nKillMode=control-group\nNeedDaemonReload=no\n");
  EXPECT_EQ(harm(), "none") << "this systemd does not know the unit";
}

TEST(Reload, EndsNothing) {
  const test::ScratchDirectory scratch;
  const HostFs host(scratch.path());
  const auto control = reload_of_unit(host, "crio.service");
  EXPECT_EQ(control->text(), "reload crio.service");
  EXPECT_EQ(control->harm(), std::nullopt);
  EXPECT_FALSE(control->act().has_value()) << "there is no systemd";
}

/// Runs no program, and notes which ones it was to run.
class NotedRuns final : public test::ModuleWriter {
 public:
  Result<> run(const HostCommand& command, std::chrono::milliseconds /*deadline*/) override {
    ran.push_back(command);
    return {};
  }
  std::vector<HostCommand> ran;
};

TEST(CommandOfAnAdministrator, IsRunWithItsWordsAndKilledWhenItIsLate) {
  NotedRuns writer;
  const auto control = run_of_command(writer, {"/usr/bin/systemctl", "restart", "containerd"});
  EXPECT_EQ(control->text(), "run /usr/bin/systemctl restart containerd");
  EXPECT_EQ(control->harm(), std::nullopt);
  must(control->act());
  ASSERT_EQ(writer.ran.size(), 1U);
  EXPECT_THAT(writer.ran.front().words, ElementsAre("/usr/bin/systemctl", "restart", "containerd"));
  EXPECT_TRUE(writer.ran.front().killed_when_late);
}

}  // namespace
}  // namespace ferry::cli
