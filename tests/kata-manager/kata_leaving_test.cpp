// SPDX-License-Identifier: Apache-2.0
// What a class is made of, and who may need it still when it leaves.
#include <filesystem>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include <gmock/gmock.h>

#include "kata-manager/artifacts/known_artifacts.h"
#include "kata-manager/configuration/kata_users.h"
#include "kata-manager/controller/kata_install.h"
#include "kata-manager/controller/restart_check.h"
#include "kata-manager/runtimes/runtime_record.h"
#include "tests/kata-manager/faulty_host.h"
#include "tests/kata-manager/gpu_artifact.h"
#include "tests/kata-manager/predicted_daemon.h"
#include "tests/support/must.h"
#include "tests/support/scratch_directory.h"

namespace ferry::kata {
namespace {

using test::kMain;
using test::must;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;

constexpr const char* kOther = "etc/containerd/other.toml";
constexpr const char* kNothing = "version = 2\n";
constexpr const char* kForeign =
    "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.foreign]\n"
    "  runtime_type = \"io.containerd.kata.v2\"\n"
    "[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc]\n"
    "  runtime_type = \"io.containerd.runc.v2\"\n";
constexpr const char* kFolder = "etc/ferry/kata/kata-a";
constexpr const char* kArtifact = "opt/art/kata-a";

class KataLeaving : public testing::Test {
 protected:
  KataLeaving() {
    test::add_gpu_artifact(scratch, {"kata-a"});
    scratch.file(kMain, std::string("imports = [\"/") + kOther + "\"]\n" + test::kMainText);
    scratch.file(kOther, kNothing);
    daemon = std::make_unique<test::PredictedDaemon>(host);
    must(apply_kata(context(), writer, planned(install()), {"/opt/art"}));
    installed = text(kMain);
  }

  ChangeContext context() {
    return {.host = &host,
            .runtime = daemon.get(),
            .control = restarts ? daemon.get() : nullptr,
            .patience = std::chrono::milliseconds(0)};
  }
  FoundRuntime runtime() const {
    FoundRuntime out;
    out.place = must(runtime_place("containerd"));
    out.place.next_socket = next_socket;
    out.release = test::kRelease;
    return out;
  }
  Result<KataChange> install(const std::string& more = ", aliases: [kata-alias]",
                             const std::string& name = "kata-a") const {
    const auto file = must(
        read_classes({.file = {},
                      .text = "version: v2\nartifactsDir: /opt/art\nloadModules: false\nruntimeClasses:\n"
                              "- {name: " +
                              name + ", artifacts: {url: \"file:///srv/gpu\"}" + more + "}\n"}));
    return plan_kata(host, file, {.gpus = 1, .mode = {}}, runtime(),
                     [&](const KataClass& kata) { return known_artifact(host, file, kata); });
  }
  KataChange& planned(Result<KataChange> plan) { return change = must(std::move(plan)); }
  Result<bool> uninstall() {
    return apply_kata(context(), writer, planned(plan_no_kata(host, runtime())), {"/opt/art"});
  }
  void shim(const std::string& pid, const std::string& sandbox) const {
    std::string line;
    for (const std::string& word :
         {std::string("/opt/kata/bin/containerd-shim-kata-v2"), std::string("-namespace"),
          std::string("k8s.io"), std::string("-id"), sandbox})
      line += word + '\0';
    scratch.file("proc/" + pid + "/cmdline", line);
    scratch.link("proc/" + pid + "/exe", "/opt/kata/bin/containerd-shim-kata-v2");
  }
  void end_shim(const std::string& pid) const { scratch.remove("proc/" + pid); }
  static RunningPod pod(const std::string& handler, const std::string& sandbox = "abc") {
    return {.name_space = "ns", .name = "vm", .handler = handler, .sandbox = sandbox};
  }
  void copy_ours() const {
    std::string copy;
    std::istringstream lines(installed);
    for (std::string line; std::getline(lines, line);)
      if (!line.starts_with("#") && !line.starts_with("imports")) copy += line + "\n";
    scratch.file(kOther, copy);
  }
  bool is_whole() const {
    return host.exists(std::string(kFolder) + "/configuration.toml") && host.link_target(kArtifact) &&
           text(kMain) == installed;
  }
  bool is_gone() const { return !host.exists(kFolder) && !host.link_target(kArtifact); }
  std::string text(const char* path) const { return host.read_file(path).value_or("there is none"); }
  void expect_refused(const std::string& who, Errc code = Errc::refused) {
    const auto done = uninstall();
    ASSERT_FALSE(done.has_value());
    EXPECT_EQ(done.error().code, code);
    EXPECT_THAT(done.error().message, HasSubstr(who));
    EXPECT_TRUE(is_whole()) << who;
  }
  test::ScratchDirectory scratch;
  test::FaultyHost host{scratch.path()};
  test::ModuleWriter writer;
  std::unique_ptr<test::PredictedDaemon> daemon;
  bool restarts = true;
  std::optional<std::filesystem::path> next_socket;
  KataChange change;
  std::string installed;
};

TEST_F(KataLeaving, GoesWhenNobodyHasIt) {
  ASSERT_TRUE(is_whole());
  EXPECT_TRUE(must(uninstall()));
  EXPECT_TRUE(is_gone());
}

// Another program has copied Ferry's tables into a file of its own: they leave with those in the block.
TEST_F(KataLeaving, TakesACopyAway) {
  copy_ours();
  must(daemon->act());
  daemon->running = {pod("kata-alias")};
  expect_refused("ns/vm (kata-alias)");
  daemon->running.clear();
  EXPECT_TRUE(must(uninstall()));
  EXPECT_THAT(text(kOther), testing::Not(HasSubstr("kata-a")));
  EXPECT_TRUE(is_gone());
}

// Of a class that stays an alias goes alone; of one that the host cannot have any more, or whose folder is
// lost, every handler, and no file of Kata's.
TEST_F(KataLeaving, IsLookedForWhereHandlersGoAlone) {
  struct Row {
    const char* what;
    std::function<Result<KataChange>()> plan;
    const char* pods_handler;
    bool first_loses_its_folder = false;
  };
  for (const Row& row : {
           Row{"an alias", [&] { return install(""); }, "kata-alias"},
           Row{"a class that is refused", [&] { return install(", kind: snp"); }, "kata-a"},
           Row{"a class without its folder", [&] { return plan_no_kata(host, runtime()); }, "kata-a", true},
       }) {
    SCOPED_TRACE(row.what);
    if (row.first_loses_its_folder) scratch.remove("etc/ferry/kata");
    EXPECT_THAT(must(row.plan()).setup.gone, IsEmpty());
    daemon->runs = false;
    shim("83", "abc");
    const auto down = apply_kata(context(), writer, planned(row.plan()), {"/opt/art"});
    ASSERT_FALSE(down.has_value());
    EXPECT_EQ(down.error().code, Errc::refused);
    EXPECT_THAT(down.error().message, HasSubstr("process 83, Kata's shim of the sandbox abc"));
    EXPECT_EQ(text(kMain), installed);
    must(daemon->act());
    daemon->running = {pod(row.pods_handler)};
    const auto up = apply_kata(context(), writer, planned(row.plan()), {"/opt/art"});
    ASSERT_FALSE(up.has_value());
    EXPECT_THAT(up.error().message, HasSubstr(std::string("ns/vm (") + row.pods_handler + ")"));
    EXPECT_EQ(text(kMain), installed);
    end_shim("83");
    daemon->running.clear();
  }
}

// Whose pods run with it the runtime says; a look at processes is for the files that a VM runs on.
TEST_F(KataLeaving, NeedsNoProcessesWhereHandlersGoAlone) {
  scratch.remove("proc");
  daemon->running = {pod("kata-alias")};
  const auto used = apply_kata(context(), writer, planned(install("")), {"/opt/art"});
  ASSERT_FALSE(used.has_value());
  EXPECT_EQ(used.error().code, Errc::refused);
  EXPECT_THAT(used.error().message, HasSubstr("ns/vm (kata-alias)"));
  EXPECT_EQ(text(kMain), installed);
  daemon->running = {pod("kata-a")};
  EXPECT_TRUE(must(apply_kata(context(), writer, planned(install("")), {"/opt/art"})));
  EXPECT_THAT(text(kMain), testing::Not(HasSubstr("kata-alias")));
}

// Its files have lost our section, and it has not read them since.
TEST_F(KataLeaving, HasARuntimeForgetWhatItKnowsThoughNoFileSaysIt) {
  scratch.file(kMain, test::kMainText);
  installed = test::kMainText;
  daemon->running = {pod("kata-a")};
  expect_refused("ns/vm (kata-a)");
  daemon->running.clear();
  const int before = daemon->acts;
  EXPECT_TRUE(must(uninstall()));
  EXPECT_EQ(daemon->acts, before + 1);
  EXPECT_TRUE(is_gone());
}

TEST_F(KataLeaving, IsLookedForByItsShimsWhereTheRuntimeIsDown) {
  daemon->runs = false;
  shim("77", "abc");
  expect_refused("process 77, Kata's shim of the sandbox abc");
  end_shim("77");
  EXPECT_TRUE(must(uninstall()));
  EXPECT_TRUE(is_gone());
}

TEST_F(KataLeaving, IsKeptForASandboxThatIsBeingMade) {
  shim("78", "new");
  expect_refused("process 78");
  daemon->running = {pod("", "new")};
  expect_refused("ns/vm (default)");  // whatever the default runtime was when it began
  scratch.file(kOther, kForeign);
  must(daemon->act());
  daemon->running = {pod("foreign", "new")};
  EXPECT_TRUE(must(uninstall())) << "it is of somebody else's Kata";
  EXPECT_TRUE(is_gone());
}

TEST_F(KataLeaving, DoesNotWaitForARuntimeThatIsForgottenAndIsNotKatas) {
  daemon->running = {pod("nvidia")};
  EXPECT_TRUE(must(uninstall()));
}

// CRI-O does not report the settings of its runtimes.
TEST_F(KataLeaving, IsKeptForAPodOfARuntimeThatReportsNothing) {
  daemon->reports_handlers = false;
  shim("80", "abc");
  daemon->running = {pod("kata-alias")};
  expect_refused("ns/vm (kata-alias)");
  daemon->running = {pod("no-name-of-ours")};
  expect_refused("ns/vm (no-name-of-ours)");
}

TEST_F(KataLeaving, IsLookedForOnlyWhereProcessesAreToBeSeen) {
  scratch.remove("proc");
  expect_refused("there is no process in the host's /proc", Errc::unsupported);
}

TEST_F(KataLeaving, LeavesAFolderOfAnAdministratorsAlone) {
  scratch.file(std::string(kFolder) + "/config.d/90-own.toml", "");
  EXPECT_TRUE(must(uninstall()));
  EXPECT_TRUE(host.exists(std::string(kFolder) + "/config.d/90-own.toml"));
  EXPECT_THAT(must(plan_no_kata(host, runtime())).setup.gone, IsEmpty());
  EXPECT_THAT(must(install()).setup.gone, IsEmpty());
}

TEST_F(KataLeaving, TakesACopyAwayWhereTheRuntimeDoesNotRun) {
  copy_ours();
  daemon->runs = false;
  EXPECT_TRUE(must(uninstall()));
  EXPECT_THAT(text(kOther), testing::Not(HasSubstr("kata-a")));
  EXPECT_TRUE(is_gone());
}

// The kubelet would lose the socket that the daemon has now.
TEST_F(KataLeaving, IsRefusedWhereTheDaemonRunsWithoutTheSocketOfItsFiles) {
  scratch.file("lib/systemd/system/containerd.service", "[Service]\nExecStart=/usr/bin/containerd\n");
  for (const char* slice : {"sys/fs/cgroup/system.slice", "sys/fs/cgroup/systemd/system.slice"}) {
    scratch.file(std::string(slice) + "/containerd.service/cgroup.procs", "1\n");
    for (const char* named : {"/run/containerd/containerd.sock", "/run/new.sock"}) {
      next_socket = named;
      expect_refused("names the socket " + std::string(named) + ", and containerd.service runs without it");
    }
    // hostd is given the socket that the kubelet has.
    scratch.file("run/containerd/containerd.sock", "");
    expect_refused("names the socket /run/new.sock");
    scratch.remove("run/containerd");
    scratch.remove("sys/fs");
  }
  EXPECT_TRUE(must(uninstall())) << "the daemon is stopped";
}

TEST_F(KataLeaving, IsTakenAwayWhereTheDaemonHasTheSocketOfItsFiles) {
  scratch.file("lib/systemd/system/containerd.service", "[Service]\nExecStart=/usr/bin/containerd\n");
  scratch.file("sys/fs/cgroup/system.slice/containerd.service/cgroup.procs", "1\n");
  scratch.file("run/containerd/containerd.sock", "");
  next_socket = "/var/run/containerd/../containerd/containerd.sock";
  EXPECT_TRUE(must(uninstall()));
}

// A restart reads all that has changed in the files since the last one. Without containerd's program nothing
// shows that CRI loads with it.
class EditedSinceTheStart : public KataLeaving {
 protected:
  EditedSinceTheStart() {
    scratch.file("run/containerd/containerd.sock", "");
    const auto changed = [&](const char* path) {
      struct stat status {};
      EXPECT_EQ(::stat((scratch.path() / path).c_str(), &status), 0);
      return std::pair(status.st_ctim.tv_sec, status.st_ctim.tv_nsec);
    };
    while (changed(kMain) <= changed("run/containerd/containerd.sock"))
      scratch.file(kMain, installed + "# a comment\n");
    installed = text(kMain);
  }
};

TEST_F(EditedSinceTheStart, IsRefusedBeforeAnythingIsWritten) {
  expect_refused("/etc/containerd/config.toml has changed since containerd was started");
  const auto foreseen = may_apply_kata(context(), planned(plan_no_kata(host, runtime())));
  ASSERT_FALSE(foreseen.has_value());
  EXPECT_THAT(foreseen.error().hint, HasSubstr("--accept-edited-files"));
}

TEST_F(EditedSinceTheStart, IsReadWhereThatIsAccepted) {
  auto accepting = context();
  accepting.accept_edited_files = true;
  EXPECT_TRUE(must(apply_kata(accepting, writer, planned(plan_no_kata(host, runtime())), {"/opt/art"})));
  EXPECT_TRUE(is_gone());
}

// A run that was killed after its proof leaves a record, and the next one restarts containerd for it.
TEST_F(EditedSinceTheStart, IsRefusedToARunThatTakesAnotherOneUp) {
  must(write_runtime_record(host, {}));
  const auto again = apply_kata(context(), writer, planned(install()), {"/opt/art"});
  ASSERT_FALSE(again.has_value());
  EXPECT_THAT(again.error().message, HasSubstr("has changed since containerd was started"));
}

// k3s makes the file from a template at each start: no trial sees what is edited there.
TEST_F(EditedSinceTheStart, CountsForATemplateWhereverTheProgramIs) {
  scratch.file("etc/containerd/config.toml.tmpl", "edited");
  KataChange& leaving = planned(plan_no_kata(host, runtime()));
  leaving.runtime.program = "/usr/bin/containerd";
  leaving.runtime.place.rendered = true;
  const auto done = may_apply_kata(context(), leaving);
  ASSERT_FALSE(done.has_value());
  EXPECT_THAT(done.error().message, HasSubstr("/etc/containerd/config.toml.tmpl has changed since"));
}

TEST_F(EditedSinceTheStart, DoesNotMatterWhereNothingRestartsIt) {
  restarts = false;
  EXPECT_TRUE(may_apply_kata(context(), planned(plan_no_kata(host, runtime()))).has_value());
}

/// A containerd that is started apart, and says these words.
class TrialWriter final : public test::ModuleWriter {
 public:
  explicit TrialWriter(const HostFs& on) : host(on) {}
  Result<std::string> output(const HostCommand& command, std::chrono::milliseconds /*deadline*/) override {
    asked.push_back(command.text());
    return std::string("version = 2\n[plugins]\n");
  }
  Result<std::string> transcript(const HostCommand& command, std::chrono::milliseconds deadline) override {
    EXPECT_TRUE(command.killed_when_late);
    asked.push_back(command.text());
    if (command.text().find("serves.toml") != std::string::npos) {
      EXPECT_GE(deadline, kTrialServes);
      if (ends.empty())
        return fail(Error{.code = std::make_error_code(std::errc::timed_out),
                          .message = "it did not end, and was killed"});
      return ends;
    }
    EXPECT_EQ(deadline, kTrialDeadline);
    const bool is_default = host.read_file(std::string(kTrialFolder) + "/0.toml").value_or("").empty();
    return is_default && !says_so_of_defaults ? std::string(kLoads) : says;
  }
  static constexpr const char* kLoads =
      "containerd: required plugin [io.containerd.ferry.v1.trial] not included\n";
  const HostFs& host;
  bool says_so_of_defaults = false;
  std::string ends;  // what it says where it serves, and ends; empty: it serves until it is killed
  std::string says =
      "containerd: load required plugin io.containerd.grpc.v1.cri: invalid plugin config: "
      "`x` cannot be set\n";
  std::vector<std::string> asked;
};

TEST_F(EditedSinceTheStart, IsRefusedWithContainerdsOwnWords) {
  TrialWriter trial(host);
  KataChange& leaving = planned(plan_no_kata(host, runtime()));
  leaving.runtime.program = "/usr/bin/containerd";
  EXPECT_TRUE(may_apply_kata(context(), leaving).has_value());
  EXPECT_THAT(trial.asked, IsEmpty()) << "a plan starts nothing";
  const auto done = apply_kata(context(), trial, leaving, {"/opt/art"});
  ASSERT_FALSE(done.has_value());
  EXPECT_EQ(done.error().code, Errc::refused);
  EXPECT_EQ(done.error().message,
            "/etc/containerd/config.toml:4: containerd 1.7.24 would serve no CRI after a restart: "
            "io.containerd.grpc.v1.cri: invalid plugin config: `x` cannot be set");
  EXPECT_TRUE(is_whole());
  EXPECT_FALSE(host.exists(kTrialFolder));

  trial.says = "containerd: load required plugin io.containerd.grpc.v1.cri: no snapshotter\n";
  EXPECT_EQ(
      apply_kata(context(), trial, leaving, {"/opt/art"}).error().message,
      "/etc/containerd/config.toml, /etc/containerd/other.toml: containerd 1.7.24 would serve no CRI after "
      "a restart: io.containerd.grpc.v1.cri: no snapshotter")
      << "a reason without a key";

  trial.says_so_of_defaults = true;
  const auto no_witness = apply_kata(context(), trial, leaving, {"/opt/art"});
  ASSERT_FALSE(no_witness.has_value());
  EXPECT_THAT(no_witness.error().message, HasSubstr("has changed since containerd was started"))
      << "a trial that fails with containerd's own defaults says nothing of the files";

  trial.says = TrialWriter::kLoads;
  planned(plan_no_kata(host, runtime())).runtime.program = "/usr/bin/containerd";
  EXPECT_TRUE(must(apply_kata(context(), trial, change, {"/opt/art"})));
  EXPECT_TRUE(is_gone());
}

// One that loads CRI may end when a server of its begins to listen.
TEST_F(EditedSinceTheStart, IsRefusedWithTheWordsOfOneThatEndsWhenItServes) {
  TrialWriter trial(host);
  trial.says = TrialWriter::kLoads;
  trial.ends =
      "time=\"2026\" level=error msg=\"Failed to start streaming server\" error=\"listen\"\n"
      "time=\"2026\" level=fatal msg=\"Failed to run CRI service\" error=\"stream \\\"10.9.9.9:0\\\": no "
      "address\"\n";
  planned(plan_no_kata(host, runtime())).runtime.program = "/usr/bin/containerd";
  const auto always = apply_kata(context(), trial, change, {"/opt/art"});
  ASSERT_FALSE(always.has_value());
  EXPECT_THAT(always.error().message,
              testing::AllOf(HasSubstr("has changed since"),
                             HasSubstr("Failed to run CRI service: stream \"10.9.9.9:0\": no address")));
  EXPECT_TRUE(is_whole());
}

// The next start reads the files, whoever makes it.
TEST_F(KataLeaving, IsRefusedToAStoppedContainerdThatWouldServeNoCri) {
  TrialWriter trial(host);
  planned(plan_no_kata(host, runtime())).runtime.program = "/usr/bin/containerd";
  for (const bool stopped : {true, false}) {
    daemon->runs = !stopped;
    restarts = stopped;
    const auto done = apply_kata(context(), trial, change, {"/opt/art"});
    ASSERT_FALSE(done.has_value());
    EXPECT_EQ(done.error().code, Errc::refused);
    EXPECT_THAT(done.error().message,
                HasSubstr("containerd 1.7.24 would serve no CRI after its next start: "));
    EXPECT_TRUE(is_whole());
  }
}

TEST_F(KataLeaving, SaysWhereOnlyTheModelHasJudged) {
  restarts = false;
  planned(plan_no_kata(host, runtime())).runtime.no_program = "there is no /usr/bin/containerd";
  ASSERT_FALSE(must(apply_kata(context(), writer, change, {"/opt/art"})));
  EXPECT_THAT(change.outcome->unverified.value_or(""),
              testing::EndsWith("; not tried: there is no /usr/bin/containerd"));
}

TEST_F(KataLeaving, SaysNothingOfAModelWhereContainerdHasTriedTheFiles) {
  restarts = false;
  TrialWriter trial(host);
  trial.says = TrialWriter::kLoads;
  planned(plan_no_kata(host, runtime())).runtime.program = "/usr/bin/containerd";
  ASSERT_FALSE(must(apply_kata(context(), trial, change, {"/opt/art"})));
  EXPECT_THAT(change.outcome->unverified.value_or(""), testing::EndsWith("until its next start"));
}

TEST(KataChanges, LeaveAHostWithWhatItCanHave) {
  KataChange change;
  change.setup.refused.push_back({.name = "kata-snp", .why = {}});
  EXPECT_FALSE(has_what_it_can(change)) << "it has nothing";
  change.setup.classes.emplace_back().name = "kata-a";
  EXPECT_TRUE(has_what_it_can(change));
  change.left = "Kata's files of what leaves stay";
  change.outcome.emplace();
  EXPECT_FALSE(has_what_it_can(change)) << "somebody has them";
  change.outcome->unverified = "it runs on with what it has read before";
  EXPECT_TRUE(has_what_it_can(change)) << "nobody was to make it read its files";
  change.outcome->acted = true;
  EXPECT_FALSE(has_what_it_can(change));
}

// `restart: none`: whoever stays with the host, and is started again, is not kept from it.
TEST_F(KataLeaving, LeavesAHostWithWhatItCanHaveThoughNobodyRestarts) {
  restarts = false;
  test::add_gpu_artifact(scratch, {"kata-b"});
  for (const char* start : {"the first", "the second"}) {
    SCOPED_TRACE(start);
    EXPECT_FALSE(must(apply_kata(context(), writer, planned(install("", "kata-b")), {"/opt/art"})));
    EXPECT_TRUE(host.exists(kFolder));
    EXPECT_THAT(change.left, HasSubstr("has not read its own files yet"));
    EXPECT_TRUE(has_what_it_can(change));
  }
}

TEST_F(KataLeaving, IsKeptForWhatBeginsWhileTheRuntimeIsRestarted) {
  daemon->meanwhile = [&] { shim("79", "late"); };
  EXPECT_FALSE(must(uninstall()));
  EXPECT_THAT(change.plan.notes, testing::Contains(HasSubstr("process 79")));
  EXPECT_TRUE(host.exists(kFolder));
  EXPECT_TRUE(host.link_target(kArtifact));
  end_shim("79");
  EXPECT_TRUE(must(uninstall()));
  EXPECT_TRUE(is_gone());
}

// Written without a restart; somebody else restarts it, and a pod runs on.
TEST_F(KataLeaving, IsKeptForAPodWhoseRuntimeIsForgotten) {
  restarts = false;
  EXPECT_FALSE(must(uninstall())) << "it has not read its files";
  restarts = true;
  must(daemon->act());
  installed = text(kMain);
  shim("81", "abc");
  daemon->running = {pod("kata-alias")};
  expect_refused("ns/vm (kata-alias)");
  end_shim("81");
  daemon->running.clear();
  EXPECT_TRUE(must(uninstall()));
  EXPECT_TRUE(is_gone());
}

TEST_F(KataLeaving, WaitsForWhoWorksWithItsArtifacts) {
  {
    const auto other = must(lock_artifacts(host, "opt/art"));
    const int before = daemon->acts;
    expect_refused("another program works in /opt/art");
    EXPECT_EQ(daemon->acts, before);
  }
  EXPECT_TRUE(must(uninstall()));
  EXPECT_TRUE(is_gone());
}

// The daemon is down by a run that was killed: it comes back first, and the VM keeps what it runs on.
TEST_F(KataLeaving, IsKeptByARunThatTakesUpOneThatWasKilled) {
  must(write_runtime_record(host, {}));
  daemon->runs = false;
  shim("82", "abc");
  EXPECT_FALSE(must(uninstall()));
  EXPECT_TRUE(daemon->runs);
  EXPECT_THAT(change.left, HasSubstr("process 82"));
  EXPECT_TRUE(host.exists(kFolder));
  EXPECT_TRUE(host.link_target(kArtifact));
}

// By its folder it is known that it leaves: whatever fails, the next run finds what is left.
TEST_F(KataLeaving, IsTakenUpAgainWhateverFailed) {
  for (int at = 0;; ++at) {
    must(apply_kata(context(), writer, planned(install()), {"/opt/art"}));
    test::add_gpu_artifact(scratch, {"kata-a"});
    host.writes = 0;
    host.fails_at = at;
    const bool well = uninstall().has_value();
    host.fails_at = -1;
    EXPECT_TRUE(well || must(uninstall())) << at;
    EXPECT_TRUE(is_gone()) << at;
    if (well) {
      EXPECT_GT(at, 3) << "nothing was written";
      break;
    }
  }
}

// The link leads to what was fetched last, whatever becomes of the rest of an upgrade.
TEST_F(KataLeaving, IsMadeOfTheFilesOfOneVersion) {
  constexpr const char* kVersion = "opt/art/.ferry/kata-a/sha256-one";
  for (const char* file : {"configuration.toml", "vmlinuz", "image"})
    scratch.file(std::string(kVersion) + "/" + file, text((std::string("srv/gpu/") + file).c_str()));
  scratch.link(kArtifact, ".ferry/kata-a/sha256-one");
  ClassFile file;
  KataClass& kata = file.classes.emplace_back();
  kata.name = "kata-a";
  kata.artifacts.allow_host_paths = {"/usr/bin/qemu"};
  const auto setup = must(set_up(host, file, {.gpus = 1, .mode = {}}, [&](const KataClass&) {
    Artifact artifact{.name = "kata-a",
                      .url = "registry.example/kata:1",
                      .digest = {},
                      .folder = std::string("/") + kArtifact,
                      .version = std::string("/") + kVersion,
                      .configuration = std::string("/") + kArtifact + "/configuration.toml",
                      .files = {},
                      .notes = {}};
    for (const char* name : {"configuration.toml", "vmlinuz", "image"})
      artifact.files.push_back({.path = name, .size = 1, .sha256 = {}, .link = {}});
    return Result<std::optional<Artifact>>(artifact);
  }));
  ASSERT_FALSE(setup.files.empty());
  EXPECT_THAT(setup.files.back().after.value_or(""),
              HasSubstr(std::string("kernel = \"/") + kVersion + "/vmlinuz\"\n"));
}

TEST(KataShims, AreKnownByTheirPrograms) {
  const test::ScratchDirectory scratch;
  const HostFs host(scratch.path());
  EXPECT_FALSE(must(kata_shims(host)).any_process) << "nothing runs on a tree";
  const auto process = [&](const std::string& name, const std::string& program, const std::string& words) {
    std::string line = words;
    std::ranges::replace(line, ' ', '\0');
    scratch.file("proc/" + name + "/cmdline", line);
    if (!program.empty()) scratch.link("proc/" + name + "/exe", program);
  };
  process("1", "/sbin/init", "/sbin/init");
  process("2", "", "");
  scratch.file("proc/2/exe", "");  // no link, as that of a kernel thread leads nowhere
  process("20", "/usr/bin/containerd-shim-runc-v2", "/usr/bin/containerd-shim-runc-v2 -id runc");
  process("21", "/opt/kata/bin/containerd-shim-kata-v2",
          "containerd-shim-kata-v2 -address /c.sock -id abc -debug");
  process("22", "/opt/kata/bin/containerd-shim-kata-qemu-v2 (deleted)", "shim --id def");
  process("23", "/opt/kata/bin/containerd-shim-kata-v2", "containerd-shim-kata-v2 -id");
  process("24", "/bin/sh", "/opt/kata/bin/containerd-shim-kata-v2 -id a-script");
  process("x25", "/opt/kata/bin/containerd-shim-kata-v2", "containerd-shim-kata-v2 -id xyz");
  process("26", "/containerd-shim-kata-v2", "containerd-shim-kata-v2 -id of-a-container");
  scratch.directory("containers/26");
  scratch.link("proc/1/root", "../..");
  scratch.link("proc/21/root", "../..");
  scratch.link("proc/26/root", "../../containers/26");
  const auto shims = must(kata_shims(host));
  EXPECT_TRUE(shims.any_process);
  EXPECT_THAT(shims.by_sandbox, ElementsAre(Pair("", 23), Pair("abc", 21), Pair("def", 22)));

  scratch.file("proc/27/exe", "");
  scratch.file("proc/27/cmdline", "");
  process("27/task/28", "", "containerd-shim-kata-v2 -id ghi");
  EXPECT_THAT(must(kata_shims(host)).by_sandbox, testing::Contains(Pair("ghi", 27)))
      << "its first thread has ended, and others run";
}

// The kernel's own /proc has processes without a program: its threads, and zombies.
TEST(KataShims, AreLookedForAmongAllProcessesOfTheHost) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  ASSERT_GT(child, 0);
  siginfo_t ended{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT), 0);
  const auto shims = kata_shims(HostFs("/"));
  ::waitpid(child, nullptr, 0);
  if (!shims && ::geteuid() != 0) {
    EXPECT_EQ(shims.error().code, std::errc::permission_denied) << shims.error().text();
  } else {
    EXPECT_TRUE(shims) << shims.error().text();
  }
}

}  // namespace
}  // namespace ferry::kata
