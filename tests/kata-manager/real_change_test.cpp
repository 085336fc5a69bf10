// SPDX-License-Identifier: Apache-2.0
// Real daemons whose configuration is changed: planned, written, asked by `config dump`, restarted, asked
// over their socket; and one that does not come back.
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <sys/stat.h>
#include <utility>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "api/files.h"
#include "hostfs/host_writer.h"
#include "kata-manager/controller/found_runtime.h"
#include "kata-manager/controller/kata_keeper.h"
#include "kata-manager/controller/restart_check.h"
#include "kata-manager/controller/runtime_change.h"
#include "kata-manager/runtimes/containerd_plan.h"
#include "kata-manager/runtimes/cri_client.h"
#include "tests/kata-manager/containerd_daemon.h"
#include "tests/kata-manager/gpu_artifact.h"
#include "tests/support/must.h"
#include "tests/support/scratch_directory.h"

namespace ferry::kata {
namespace {

using testing::HasSubstr;

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
      : release(binary.release), daemon(binary, scratch.path()), program_(binary.path) {
    scratch.file(kMain.relative_path(), main.empty() ? daemon.own_settings() : main);
  }
  Result<RuntimeOutcome> install(const std::vector<RuntimeHandler>& handlers) {
    plan = planned(handlers);
    return make_so(handlers);
  }
  Result<RuntimeOutcome> make_so(const std::vector<RuntimeHandler>& handlers) {
    const auto before = test::must(containerd_plugins(writer_, program_, daemon.main()));
    return apply_change({.host = &host,
                         .runtime = &runtime,
                         .control = &restart,
                         .contradiction = [&]() -> Result<std::optional<std::string>> {
                           return unplanned(before,
                                            test::must(containerd_plugins(writer_, program_, daemon.main())),
                                            plan, handlers, release);
                         },
                         .patience = patience},
                        {.files = plan.changes, .handlers = handlers, .leaving = plan.leaving});
  }
  RuntimePlan planned(const std::vector<RuntimeHandler>& handlers) const {
    return test::must(
        plan_containerd(release, test::must(runtime_place("containerd")), ConfigFiles(host), handlers));
  }
  std::string main() const { return host.read_file(kMain.relative_path()).value_or(""); }

  std::chrono::milliseconds patience = std::chrono::seconds(20);
  test::ScratchDirectory scratch;
  HostFs host{scratch.path()};
  ContainerdRelease release;
  test::ContainerdDaemon daemon;
  RuntimePlan plan;
  CriClient runtime{host, "/run/containerd/containerd.sock"};
  Restart restart{daemon};

 private:
  HostFs machine_{"/"};
  SpawningWriter writer_{machine_};
  std::filesystem::path program_;
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
      EXPECT_EQ(outcome.unverified, std::nullopt);
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

// What runs has the old one until it is restarted, and says so.
TEST_F(RealChange, OfASnapshotterOrAnAnnotationIsKnownToWhoAsks) {
  for (const auto& binary : test::containerd_binaries()) {
    SCOPED_TRACE(binary.release.text());
    Node node(binary, "");
    ASSERT_TRUE(node.daemon.start()) << node.daemon.log();
    auto handlers = ours("/opt/a.toml");
    test::must(node.install(handlers));
    const auto before = test::must(node.runtime.state());
    EXPECT_TRUE(before.knows(handlers.front()));
    const auto known = std::ranges::find(before.runtimes.value(), "kata-nvidia-gpu", &KnownRuntime::name);
    EXPECT_TRUE(known->pod_annotations && known->container_annotations) << "it says them";
    EXPECT_EQ(known->snapshotter.has_value(), binary.release.has_runtime_snapshotters());
    handlers.front().pod_annotations = {"io.katacontainers.*"};
    EXPECT_FALSE(before.knows(handlers.front()));
    handlers = ours("/opt/a.toml");
    handlers.front().snapshotter = "nydus";
    if (!binary.release.has_runtime_snapshotters()) continue;
    EXPECT_FALSE(before.knows(handlers.front()));
    const auto outcome = test::must(node.install(handlers));
    EXPECT_TRUE(outcome.acted);
    EXPECT_EQ(outcome.unverified, std::nullopt);
    EXPECT_TRUE(test::must(node.runtime.state()).knows(handlers.front()));
    EXPECT_FALSE(test::must(node.runtime.state()).knows(ours("/opt/a.toml").front()));
  }
}

TEST_F(RealChange, ThatADaemonDoesNotComeBackWithIsPutBackAndItRuns) {
  for (const auto& binary : test::containerd_binaries()) {
    SCOPED_TRACE(binary.release.text());
    Node node(binary, "");
    node.patience = std::chrono::seconds(4);  // which it takes
    ASSERT_TRUE(node.daemon.start()) << node.daemon.log();
    const std::string original = node.main();
    // What no plan would ever be: a socket where there is no folder, which only the daemon itself finds out.
    node.plan.changes = {{.path = kMain,
                          .before = original,
                          .after = original + "[ttrpc]\naddress = \"/proc/nowhere/socket\"\n"}};
    node.plan.after = predict_containerd(node.release, ConfigFiles(node.host), kMain);
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
    node.plan = node.planned(ours("/opt/a.toml"));
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

/// One that is started anew by whoever keeps the node.
class RestartOf final : public RuntimeControl {
 public:
  explicit RestartOf(Restart& restart) : restart_(restart) {}
  std::string text() const override { return restart_.text(); }
  std::optional<std::string> harm() const override { return restart_.harm(); }
  Result<> act() override { return restart_.act(); }

 private:
  Restart& restart_;
};

TEST_F(RealChange, IsWhatAFileAsksForAndNothingThatHasALabelLeaves) {
  for (const auto& binary : test::containerd_binaries()) {
    SCOPED_TRACE(binary.release.text());
    Node node(binary, "");
    test::add_gpu_artifact(node.scratch, {"kata-a", "kata-b"});
    ASSERT_TRUE(node.daemon.start()) << node.daemon.log();
    const std::string original = node.main();
    SpawningWriter writer(node.host);
    KataKeeper keeper({.host = &node.host,
                       .writer = &writer,
                       .asked = &node.runtime,
                       .runtime_for =
                           [&](const ClassFile&) {
                             KataRuntime out;
                             out.found_runtime.place = test::must(runtime_place("containerd"));
                             out.found_runtime.release = binary.release;
                             out.asked =
                                 std::make_unique<CriClient>(node.host, out.found_runtime.place.socket);
                             out.control = std::make_unique<RestartOf>(node.restart);
                             return Result<KataRuntime>(std::move(out));
                           },
                       .devices = [] { return Result<KataDevices>(KataDevices{.gpus = 1, .mode = {}}); }},
                      {.proof = std::chrono::seconds(20)});
    std::uint64_t generation = 0;
    const auto after = [&](std::vector<std::string> classes, std::set<std::string> unlabelled) {
      const DesiredClasses desired{
          .generation = ++generation,
          .config = {.file = {},
                     .text = "version: v2\nartifactsDir: /opt/art\nloadModules: false\nruntimeClasses:\n"
                             "- {name: kata-a, artifacts: {url: 'file:///srv/gpu'}}\n"
                             "- {name: kata-b, artifacts: {url: 'file:///srv/gpu'}}\n"},
          .classes = std::move(classes),
          .permitted = true,
          .unlabelled = std::move(unlabelled)};
      node.scratch.file(api::kDesiredClassesFile, desired_classes_text(desired));
      for (int i = 0; i < 2; ++i) keeper.round(KataKeeper::Clock::now());
      return test::must(read_handlers_file(node.host.read_file(api::kReadyHandlersFile).value_or("")));
    };
    EXPECT_EQ(after({"kata-a", "kata-b"}, {}),
              (HandlersFile{.ready = {"kata-a", "kata-b"}, .generation = 1}));
    EXPECT_EQ(node.restart.acts, 1);
    EXPECT_EQ(after({"kata-b", "kata-a"}, {}).ready.size(), 2U);
    const auto leaving = after({"kata-b"}, {});
    EXPECT_THAT(leaving.ready, testing::ElementsAre("kata-b"));
    ASSERT_EQ(leaving.others.size(), 1U);
    EXPECT_EQ(leaving.others.front().state, HandlerState::leaving);
    EXPECT_EQ(node.restart.acts, 1);
    EXPECT_TRUE(test::must(node.runtime.state()).has("kata-a"));
    EXPECT_EQ(after({"kata-b"}, {"kata-a"}), (HandlersFile{.ready = {"kata-b"}, .generation = 4}));
    EXPECT_FALSE(test::must(node.runtime.state()).has("kata-a"));
    EXPECT_EQ(after({}, {"kata-b"}), (HandlersFile{.ready = {}, .generation = 5}));
    EXPECT_EQ(node.main(), original);
    EXPECT_EQ(node.restart.acts, 3);
  }
}

// Its release is the one that Debian's package has.
TEST_F(RealChange, IsPlannedForWhatTheProgramSaysThatItIs) {
  const HostFs machine("/");
  HostFs writable("/");
  SpawningWriter writer(writable);
  for (const auto& binary : test::containerd_binaries())
    EXPECT_EQ(test::must(containerd_release(writer, binary.path)), binary.release);
  EXPECT_FALSE(containerd_release(writer, "/bin/true").has_value());
  EXPECT_FALSE(containerd_release(writer, "/bin/false").has_value());
  EXPECT_FALSE(containerd_release(writer, "/nowhere/containerd").has_value());
}

/// Each file below a folder with its size and the time of its last change.
std::map<std::string, std::string> contents_of(const std::filesystem::path& folder) {
  std::map<std::string, std::string> out;
  if (!std::filesystem::exists(folder)) return out;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    struct stat status {};
    EXPECT_EQ(::lstat(entry.path().c_str(), &status), 0);
    out[entry.path()] =
        fmt::format("{} {}.{}", status.st_size, status.st_mtim.tv_sec, status.st_mtim.tv_nsec);
  }
  return out;
}

// Whatever a configuration names outside containerd's folders, the live daemon's own among it, is not
// touched.
TEST_F(RealChange, ATrialChangesNothingOfALiveDaemon) {
  HostFs machine("/");
  SpawningWriter writer(machine);
  for (const auto& binary : test::containerd_binaries()) {
    SCOPED_TRACE(binary.release.text());
    Node node(binary, "");
    const std::string folder = node.scratch.path();
    const std::string main =
        node.daemon.own_settings() +
        fmt::format(
            "[debug]\naddress = \"{0}/debug.sock\"\n[metrics]\naddress = \"127.0.0.1:1\"\n"
            "[ttrpc]\naddress = \"{0}/ttrpc.sock\"\n"
            "[cgroup]\npath = \"ferry-trial\"\n"
            "[proxy_plugins.far]\ntype = \"snapshot\"\naddress = \"{0}/far.sock\"\n"
            "[plugins.\"io.containerd.snapshotter.v1.devmapper\"]\npool_name = \"pool\"\n"
            "root_path = \"{0}/devmapper\"\n"
            "[plugins.\"io.containerd.snapshotter.v1.overlayfs\"]\nroot_path = \"{0}/overlayfs\"\n"
            "[plugins.\"io.containerd.snapshotter.v1.native\"]\nroot_path = \"{0}/native\"\n"
            "[plugins.\"io.containerd.grpc.v1.cri\".containerd]\nsnapshotter = \"far\"\n",
            folder);
    // Without its own clean-up of what nothing refers to, which comes a moment after a start.
    node.scratch.file(kMain.relative_path(), node.daemon.own_settings() +
                                                 "[plugins.\"io.containerd.gc.v1.scheduler\"]\n"
                                                 "startup_delay = \"1h\"\n");
    ASSERT_TRUE(node.daemon.start()) << node.daemon.log();
    std::filesystem::create_directories(folder + "/etc/cni");
    const auto before = contents_of(folder);
    std::map<std::string, std::map<std::string, std::string>> of_machine;
    for (const char* other :
         {"/run/containerd", "/var/lib/containerd", "/opt/containerd", "/etc/cni", "/run/nri"})
      of_machine[other] = contents_of(other);
    const test::ScratchDirectory scratch;
    const ContainerdFile file{.path = "/main", .root = test::must(parse_toml(main, "main"))};
    EXPECT_FALSE(test::must(why_no_cri(machine, writer, binary.path, std::span(&file, 1),
                                       (scratch.path() / "trial").relative_path())));
    EXPECT_EQ(contents_of(folder), before);
    for (const auto& [other, there] : of_machine) EXPECT_EQ(contents_of(other), there) << other;
    EXPECT_TRUE(node.runtime.state().has_value()) << "the live one serves on";
  }
}

}  // namespace
}  // namespace ferry::kata
