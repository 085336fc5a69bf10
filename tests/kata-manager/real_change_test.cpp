// SPDX-License-Identifier: Apache-2.0
// Real daemons whose configuration is changed: planned, written, asked by `config dump`, restarted, asked
// over their socket; and one that does not come back.
#include <fstream>

#include <gmock/gmock.h>

#include "common/host_writer.h"
#include "kata-manager/containerd_plan.h"
#include "kata-manager/containerd_program.h"
#include "kata-manager/cri_client.h"
#include "kata-manager/runtime_change.h"
#include "tests/kata-manager/containerd_daemon.h"
#include "tests/support/must.h"
#include "tests/support/scratch_directory.h"

namespace ferry {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

const std::filesystem::path kMain = "/etc/containerd/config.toml";

class Restart final : public RuntimeControl {
 public:
  explicit Restart(test::ContainerdDaemon& daemon) : daemon_(daemon) {}
  std::string text() const override { return "restart containerd"; }
  std::optional<std::string> harm() const override { return std::nullopt; }
  Result<> act() override {
    ++acts;
    daemon_.stop();
    if (!daemon_.start()) return fail(Errc::failed, "it does not start");
    return {};
  }
  int acts = 0;

 private:
  test::ContainerdDaemon& daemon_;
};

/// A daemon, and a run of ours against it.
class Node {
 public:
  Node(const test::ContainerdBinary& binary, const std::string& main)
      : setup{.release = binary.release, .main = kMain},
        daemon(binary, scratch.path()),
        program_(writer_, binary.path) {
    scratch.file(kMain.relative_path(), main.empty() ? daemon.own_settings() : main);
  }
  Result<ChangeOutcome> install(const std::vector<RuntimeHandler>& handlers) {
    plan = test::must(plan_containerd(setup, ConfigFiles(host), handlers));
    return make_so(handlers);
  }
  Result<ChangeOutcome> make_so(const std::vector<RuntimeHandler>& handlers) {
    const auto before = test::must(program_.plugins(daemon.main()));
    return carry_out({.host = &host,
                      .runtime = &runtime,
                      .control = &restart,
                      .contradiction = [&]() -> Result<std::optional<std::string>> {
                        return unplanned(before, test::must(program_.plugins(daemon.main())), plan, handlers);
                      },
                      .patience = std::chrono::seconds(2)},
                     {.files = plan.changes, .handlers = handlers, .leaving = plan.leaving});
  }
  std::string main() const { return host.read_file(kMain.relative_path()).value_or(""); }

  test::ScratchDirectory scratch;
  HostFs host{scratch.path()};
  ContainerdSetup setup;
  test::ContainerdDaemon daemon;
  RuntimePlan plan;
  CriClient runtime{host, "/run/containerd/containerd.sock"};
  Restart restart{daemon};

 private:
  HostFs machine_{"/"};
  SpawningWriter writer_{machine_};
  ContainerdProgram program_;
};

std::vector<RuntimeHandler> ours(const std::string& configuration) {
  return {{.name = "kata-nvidia-gpu",
           .shim = "/opt/kata/bin/containerd-shim-kata-v2",
           .configuration = configuration}};
}

class RealChange : public testing::Test {
 protected:
  void SetUp() override {
    if (test::containerd_binaries().empty()) GTEST_SKIP() << "no containerd is named by FERRY_CONTAINERDS";
  }
};

TEST_F(RealChange, ComesInIsChangedAndLeavesAsIfItHadNeverBeen) {
  for (const auto& binary : test::containerd_binaries()) {
    SCOPED_TRACE(binary.release.text());
    Node node(binary, "");
    ASSERT_TRUE(node.daemon.start()) << node.daemon.log();
    const std::string original = node.main();
    for (const char* configuration : {"/opt/a.toml", "/opt/b.toml"}) {
      const auto outcome = test::must(node.install(ours(configuration)));
      EXPECT_TRUE(outcome.written && outcome.acted);
      EXPECT_EQ(outcome.unproven, std::nullopt);
      EXPECT_TRUE(test::must(node.runtime.state()).knows(ours(configuration).front()));
      EXPECT_FALSE(test::must(node.install(ours(configuration))).acted) << "it knows";
    }
    EXPECT_EQ(node.restart.acts, 2);
    EXPECT_TRUE(test::must(node.install({})).acted);
    EXPECT_FALSE(test::must(node.runtime.state()).has("kata-nvidia-gpu"));
    EXPECT_TRUE(test::must(node.runtime.state()).has("runc"));
    EXPECT_EQ(node.main(), original);
  }
}

TEST_F(RealChange, ThatADaemonDoesNotComeBackWithIsPutBackAndItRuns) {
  for (const auto& binary : test::containerd_binaries()) {
    SCOPED_TRACE(binary.release.text());
    Node node(binary, "");
    ASSERT_TRUE(node.daemon.start()) << node.daemon.log();
    const std::string original = node.main();
    // What no plan would ever be: a socket where there is no folder, which only the daemon itself finds out.
    node.plan.changes = {{.path = kMain,
                          .before = original,
                          .after = original + "[ttrpc]\naddress = \"/proc/nowhere/socket\"\n"}};
    node.plan.after = predict_containerd(node.setup.release, ConfigFiles(node.host), kMain);
    const auto outcome = node.make_so({});
    ASSERT_FALSE(outcome.has_value());
    EXPECT_THAT(outcome.error().message, HasSubstr("the files from before are back, and it runs with them"));
    EXPECT_EQ(node.main(), original);
    EXPECT_TRUE(node.runtime.state().has_value());
    EXPECT_EQ(node.restart.acts, 2);
  }
}

TEST_F(RealChange, ThatIsOtherThanPredictedIsPutBackWithoutARestart) {
  for (const auto& binary : test::containerd_binaries()) {
    SCOPED_TRACE(binary.release.text());
    Node node(binary, "");
    ASSERT_TRUE(node.daemon.start()) << node.daemon.log();
    const std::string original = node.main();
    node.plan = test::must(plan_containerd(node.setup, ConfigFiles(node.host), ours("/opt/a.toml")));
    ASSERT_FALSE(node.plan.changes.empty());
    // The prediction is of other files than those that are written.
    node.plan.changes = {{.path = kMain, .before = original, .after = original + "# nothing\n"}};
    const auto outcome = node.make_so(ours("/opt/a.toml"));
    ASSERT_FALSE(outcome.has_value());
    EXPECT_THAT(outcome.error().message, HasSubstr("otherwise than predicted"));
    EXPECT_THAT(outcome.error().message, HasSubstr("kata-nvidia-gpu"));
    EXPECT_EQ(node.main(), original);
    EXPECT_EQ(node.restart.acts, 0);
  }
}

// Its release is the one that Debian's package has.
TEST_F(RealChange, IsPlannedForWhatTheProgramSaysThatItIs) {
  const HostFs machine("/");
  HostFs writable("/");
  SpawningWriter writer(writable);
  for (const auto& binary : test::containerd_binaries())
    EXPECT_EQ(test::must(ContainerdProgram(writer, binary.path).release()), binary.release);
  EXPECT_FALSE(ContainerdProgram(writer, "/bin/true").release().has_value());
  EXPECT_FALSE(ContainerdProgram(writer, "/bin/false").release().has_value());
  EXPECT_FALSE(ContainerdProgram(writer, "/nowhere/containerd").release().has_value());
}

}  // namespace
}  // namespace ferry
