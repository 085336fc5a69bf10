// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/controller/kata_keeper.h"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <memory>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gmock/gmock.h>

#include "api/files.h"
#include "hostfs/locks.h"
#include "kata-manager/runtime/runtime_record.h"
#include "tests/kata-manager/faulty_host.h"
#include "tests/kata-manager/gpu_artifact.h"
#include "tests/kata-manager/predicted_daemon.h"
#include "tests/support/must.h"
#include "tests/support/scratch_directory.h"

namespace ferry::kata {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using test::must;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

using test::kMain;
using test::kMainText;
using test::kRelease;
using Daemon = test::PredictedDaemon;
using Asked = test::AskedDaemon;
using Restart = test::RestartOfDaemon;
using Writer = test::ModuleWriter;

constexpr const char* kOneClass = "- {name: kata-a, artifacts: {url: \"file:///srv/gpu\"}}\n";
constexpr const char* kPulledClass =
    "- {name: kata-a, artifacts: {url: \"registry.example/a:1\", allowHostPaths: [/usr/bin/qemu]}}\n";
constexpr const char* kNewerClass =
    "- {name: kata-a, artifacts: {url: \"registry.example/a:2\", allowHostPaths: [/usr/bin/qemu]}}\n";
constexpr const char* kTwoClasses =
    "- {name: kata-a, artifacts: {url: \"file:///srv/gpu\"}}\n"
    "- {name: kata-b, artifacts: {url: \"file:///srv/gpu\"}}\n";

/// A host, its daemon, and who keeps it.
struct Node {
  Node() {
    test::add_gpu_artifact(scratch, {"kata-a", "kata-b"});
    scratch.file(kMain, kMainText);
    begin();
  }
  void begin() {
    daemon = std::make_unique<Daemon>(host, release);
    keeper = std::make_unique<KataKeeper>(
        KataKeeper::Uses{.host = &host,
                         .writer = &writer,
                         .asked = daemon.get(),
                         .runtime_for = [this](const ClassFile& file) { return runtime_for(file); },
                         .devices = [] { return Result<KataDevices>(KataDevices{.gpus = 1, .mode = {}}); }},
        KataKeeper::Pauses{
            .first = seconds(10), .longest = seconds(40), .lock = milliseconds(0), .proof = milliseconds(0)});
  }
  Result<KataRuntime> runtime_for(const ClassFile& file) const {
    KataRuntime out;
    out.at_hand.place = must(runtime_place("containerd"));
    out.at_hand.release = release;
    out.asked = std::make_unique<Asked>(*daemon);
    if (file.restart.how != RuntimeRestart::How::none) out.control = std::make_unique<Restart>(*daemon);
    return out;
  }
  /// The files of an artifact, in another folder.
  void add_files(const std::string& folder) const {
    for (const char* const file : {"configuration.toml", "vmlinuz", "image"})
      scratch.file(folder + "/" + file, text(std::string("srv/gpu/") + file));
  }
  /// An artifact as the agent's fetch leaves it in the store.
  void pull(const std::string& name, const std::string& version, const std::string& url) const {
    const std::string store = "opt/art/.ferry/" + name + "/";
    add_files(store + version);
    scratch.file(store + version + ".json",
                 R"({"version": 1, "url": ")" + url +
                     R"(", "digest": "sha256:aa", "configuration": "configuration.toml", "files": [)"
                     R"({"path": "configuration.toml"}, {"path": "image"}, {"path": "vmlinuz"}]})");
    scratch.file(store + "pulled", version);
  }
  std::string link_of(const std::string& name) const {
    return host.link_target("opt/art/" + name).value_or("there is none");
  }

  void want(const std::string& list, std::vector<std::string> classes, std::set<std::string> unlabelled = {},
            const std::string& more = "loadModules: false\n") {
    desired = {
        .generation = desired.generation + 1,
        .config = {.file = {},
                   .text = "version: v2\nartifactsDir: /opt/art\n" + more + "runtimeClasses:\n" + list},
        .classes = std::move(classes),
        .permitted = true,
        .unlabelled = std::move(unlabelled)};
    write_desired();
  }
  void write_desired() const { scratch.file(api::kDesiredClassesFile, desired_classes_text(desired)); }
  KataKeeper::Round round() const { return keeper->round(now); }
  /// Rounds as they are run, until none asks to come again at once.
  HandlersFile settle() const {
    for (int i = 0; i < 5; ++i) {
      const auto again = round().again;
      if (!again || *again > now) break;
    }
    return said();
  }
  HandlersFile said() const { return must(read_handlers_file(text(api::kReadyHandlersFile))); }
  std::optional<OtherHandler> said_of(const std::string& name) const {
    const auto file = said();
    const auto other = std::ranges::find(file.others, name, &OtherHandler::name);
    return other == file.others.end() ? std::nullopt : std::optional(*other);
  }
  std::string why_of(const std::string& name) const {
    const auto other = said_of(name);
    return other ? other->why : "(nothing is said of it)";
  }
  bool says(const std::string& name, HandlerState state) const {
    const auto other = said_of(name);
    return other && other->state == state;
  }
  std::string text(const std::filesystem::path& relative) const {
    return host.read_file(relative).value_or("there is none");
  }
  /// All that is on the host but what is said.
  std::string everything() const {
    std::string out;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(scratch.path())) {
      const auto inside = entry.path().lexically_relative(scratch.path());
      if (inside.string().starts_with("run")) continue;
      out += inside.string() + (entry.is_regular_file() ? ": " + text(inside) : "") + "\n";
    }
    return out;
  }

  ContainerdRelease release = kRelease;
  test::ScratchDirectory scratch;
  test::FaultyHost host{scratch.path()};
  Writer writer;
  DesiredClasses desired;
  KataKeeper::Clock::time_point now{seconds(1000)};
  std::unique_ptr<Daemon> daemon;
  std::unique_ptr<KataKeeper> keeper;
};

class KataKeeperTest : public testing::Test, protected Node {};

TEST_F(KataKeeperTest, InstallsDesiredClassesOnce) {
  want(kTwoClasses, {"kata-a"});
  const auto said = settle();
  EXPECT_EQ(said, (HandlersFile{.ready = {"kata-a"}, .generation = 1}));
  EXPECT_THAT(text(kMain), AllOf(HasSubstr("runtimes.kata-a]"), Not(HasSubstr("kata-b"))));
  EXPECT_TRUE(host.exists("etc/ferry/kata/kata-a/config.d/60-ferry.toml"));
  EXPECT_EQ(daemon->acts, 1);
  const int writes = host.writes;
  const std::string before = everything();
  write_desired();
  EXPECT_EQ(settle(), said);
  EXPECT_EQ(host.writes, writes);
  EXPECT_EQ(everything(), before);
  EXPECT_EQ(daemon->acts, 1);
  EXPECT_THAT(writer.loaded, IsEmpty());
}

TEST_F(KataKeeperTest, TouchesNothingWithoutAFile) {
  want(kOneClass, {"kata-a"});
  settle();
  scratch.remove(api::kDesiredClassesFile);
  const std::string before = everything();
  EXPECT_EQ(settle(), (HandlersFile{.ready = {"kata-a"}}));
  EXPECT_EQ(everything(), before);
}

// A sandbox that was being made while containerd was restarted.
TEST_F(KataKeeperTest, SaysWhoKeepsWhatHasLeft) {
  want(kTwoClasses, {"kata-a", "kata-b"});
  settle();
  daemon->meanwhile = [&] {
    scratch.link("proc/79/exe", "/opt/kata/bin/containerd-shim-kata-v2");
    scratch.file("proc/79/cmdline", "containerd-shim-kata-v2");
  };
  want(kTwoClasses, {"kata-b"}, {"kata-a"});
  for (int i = 0; i < 3; ++i) {
    settle();
    EXPECT_TRUE(says("kata-a", HandlerState::blocked)) << i;
    EXPECT_THAT(why_of("kata-a"), HasSubstr("process 79")) << i;
    EXPECT_TRUE(host.exists("etc/ferry/kata/kata-a/configuration.toml"));
    now += seconds(100);
  }
  EXPECT_THAT(said().ready, ElementsAre("kata-b"));
  scratch.remove("proc/79");
  settle();
  EXPECT_EQ(said(), (HandlersFile{.ready = {"kata-b"}, .generation = 2}));
  EXPECT_FALSE(host.exists("etc/ferry/kata/kata-a"));
}

TEST_F(KataKeeperTest, WritesNothingBeforeItIsPermitted) {
  want(kOneClass, {"kata-a"});
  desired.permitted = false;
  write_desired();
  const std::string before = everything();
  EXPECT_EQ(settle(), (HandlersFile{.ready = {},
                                    .generation = 1,
                                    .others = {{.name = "kata-a", .state = HandlerState::pending}}}));
  EXPECT_EQ(everything(), before);
  EXPECT_EQ(daemon->acts, 0);
  EXPECT_FALSE(host.exists("run/ferry/hostd/lock"));
  desired.permitted = true;
  write_desired();
  EXPECT_THAT(settle().ready, ElementsAre("kata-a"));
}

TEST_F(KataKeeperTest, LoadsTheModulesThatVmsNeed) {
  want(kOneClass, {"kata-a"}, {}, "");
  settle();
  EXPECT_THAT(writer.loaded, ElementsAre("vhost_vsock", "vhost_net"));
}

TEST_F(KataKeeperTest, GoesOnWithoutAnArtifactThatIsNotHere) {
  scratch.remove("opt/art/kata-b");
  want(
      "- {name: kata-a, artifacts: {url: \"file:///srv/gpu\"}}\n"
      "- {name: kata-b, artifacts: {url: \"file:///srv/late\"}}\n",
      {"kata-a", "kata-b"});
  const auto said = settle();
  EXPECT_THAT(said.ready, ElementsAre("kata-a"));
  EXPECT_TRUE(says("kata-b", HandlerState::missing_artifact));
  EXPECT_THAT(why_of("kata-b"), HasSubstr("/srv/late"));
  add_files("srv/late");
  EXPECT_THAT(settle().ready, ElementsAre("kata-a", "kata-b"));
  EXPECT_EQ(link_of("kata-b"), "/srv/late") << "hostd makes it";
}

TEST_F(KataKeeperTest, RefusesAFolderOfTheHostThatOthersWrite) {
  const auto file = scratch.path() / "srv/gpu/configuration.toml";
  ASSERT_EQ(::chmod(file.c_str(), 0666), 0);
  want(kOneClass, {"kata-a"});
  EXPECT_THAT(settle().ready, IsEmpty());
  EXPECT_TRUE(says("kata-a", HandlerState::blocked));
  EXPECT_THAT(why_of("kata-a"), AllOf(HasSubstr("/srv/gpu/configuration.toml can be written by others"),
                                      HasSubstr("chmod -R go-w /srv/gpu")));
  EXPECT_FALSE(host.exists("etc/ferry/kata/kata-a"));
  EXPECT_EQ(daemon->acts, 0);
  ASSERT_EQ(::chmod(file.c_str(), 0644), 0);
  EXPECT_THAT(settle().ready, ElementsAre("kata-a"));
}

TEST_F(KataKeeperTest, MakesTheLinkToAPulledArtifactOnceItIsPermitted) {
  const std::string first = "sha256-" + std::string(64, 'a');
  const std::string second = "sha256-" + std::string(64, 'b');
  const auto not_permitted = [&] {
    desired.permitted = false;
    write_desired();
    settle();
    EXPECT_TRUE(says("kata-a", HandlerState::pending)) << why_of("kata-a");
  };
  scratch.remove("opt/art/kata-a");
  pull("kata-a", first, "registry.example/a:1");
  want(kPulledClass, {"kata-a"});
  not_permitted();
  EXPECT_EQ(link_of("kata-a"), "there is none");
  desired.permitted = true;
  write_desired();
  EXPECT_THAT(settle().ready, ElementsAre("kata-a")) << why_of("kata-a");
  EXPECT_EQ(link_of("kata-a"), ".ferry/kata-a/" + first);

  want(kNewerClass, {"kata-a"});
  settle();
  EXPECT_TRUE(says("kata-a", HandlerState::missing_artifact)) << "as with a URL that has a typo";
  EXPECT_EQ(link_of("kata-a"), ".ferry/kata-a/" + first);
  pull("kata-a", second, "registry.example/a:2");
  not_permitted();
  EXPECT_EQ(link_of("kata-a"), ".ferry/kata-a/" + first) << "pods that start now use it";

  want(kPulledClass, {"kata-a"});
  EXPECT_THAT(settle().ready, ElementsAre("kata-a"));
  EXPECT_FALSE(said_of("kata-a").has_value()) << "back again without a fetch: " << why_of("kata-a");
  EXPECT_EQ(link_of("kata-a"), ".ferry/kata-a/" + first);

  want(kNewerClass, {"kata-a"});
  EXPECT_THAT(settle().ready, ElementsAre("kata-a"));
  EXPECT_EQ(link_of("kata-a"), ".ferry/kata-a/" + second);
}

TEST_F(KataKeeperTest, MendsALinkWithoutARestart) {
  want(kOneClass, {"kata-a"});
  settle();
  scratch.remove("opt/art/kata-a");
  write_desired();
  EXPECT_THAT(settle().ready, ElementsAre("kata-a"));
  EXPECT_EQ(link_of("kata-a"), "/srv/gpu");
  EXPECT_EQ(daemon->acts, 1);
}

TEST_F(KataKeeperTest, LeavesALinkThatItDidNotMake) {
  scratch.remove("var/lib/ferry-hostd/kata/links.json");
  pull("kata-a", "sha256-" + std::string(64, 'a'), "registry.example/a:1");
  want(kPulledClass, {"kata-a"});
  settle();
  EXPECT_TRUE(says("kata-a", HandlerState::blocked));
  EXPECT_THAT(why_of("kata-a"),
              AllOf(HasSubstr("/opt/art/kata-a is a link to /srv/gpu that Ferry did not make"),
                    HasSubstr("`rm /opt/art/kata-a`")));
  EXPECT_EQ(link_of("kata-a"), "/srv/gpu");
  EXPECT_FALSE(host.exists("etc/ferry/kata/kata-a"));
  scratch.remove("opt/art/kata-a");
  EXPECT_THAT(settle().ready, ElementsAre("kata-a")) << why_of("kata-a");
}

TEST_F(KataKeeperTest, ChangesAndRemovesOnlyALinkThatItMade) {
  constexpr const char* kRecord = "var/lib/ferry-hostd/kata/links.json";
  const std::string others =
      "- {name: kata-a, artifacts: {url: \"file:///srv/other\"}}\n"
      "- {name: kata-b, artifacts: {url: \"file:///srv/other\"}}\n";
  add_files("srv/other");
  scratch.remove(kRecord);
  scratch.remove("opt/art/kata-b");
  want(kTwoClasses, {"kata-a", "kata-b"});
  EXPECT_THAT(settle().ready, ElementsAre("kata-a", "kata-b"));
  EXPECT_EQ(link_of("kata-a"), "/srv/gpu") << "an administrator's, and as the class has it";
  EXPECT_EQ(link_of("kata-b"), "/srv/gpu") << "hostd's";
  EXPECT_THAT(text(kRecord), AllOf(HasSubstr("/opt/art/kata-b"), Not(HasSubstr("/opt/art/kata-a"))));
  want(others, {"kata-a", "kata-b"});
  settle();
  EXPECT_TRUE(says("kata-a", HandlerState::blocked)) << "though the class is installed";
  EXPECT_THAT(why_of("kata-a"), HasSubstr("/opt/art/kata-a is a link to /srv/gpu that Ferry did not make"));
  EXPECT_EQ(link_of("kata-a"), "/srv/gpu");
  EXPECT_EQ(link_of("kata-b"), "/srv/other");
  want(others, {}, {"kata-a", "kata-b"});
  settle();
  EXPECT_FALSE(host.exists("etc/ferry/kata/kata-a")) << why_of("kata-a");
  EXPECT_FALSE(host.exists("etc/ferry/kata/kata-b")) << why_of("kata-b");
  EXPECT_EQ(link_of("kata-a"), "/srv/gpu");
  EXPECT_EQ(link_of("kata-b"), "there is none");
  EXPECT_FALSE(host.exists(kRecord));
}

TEST_F(KataKeeperTest, LeavesAnAdministratorsFolderWhereAClassHasItsName) {
  for (const char* const link : {"opt/art/kata-a", "opt/art/kata-b"}) scratch.remove(link);
  add_files("opt/art/kata-a");
  pull("kata-a", "sha256-" + std::string(64, 'a'), "registry.example/a:1");
  want(std::string(kPulledClass) + "- {name: kata-b, artifacts: {url: \"file:///opt/art/kata-a\"}}\n",
       {"kata-a", "kata-b"});
  EXPECT_THAT(settle().ready, ElementsAre("kata-b")) << why_of("kata-b");
  EXPECT_TRUE(says("kata-a", HandlerState::blocked));
  EXPECT_THAT(why_of("kata-a"), HasSubstr("/opt/art/kata-a is a folder that Ferry did not make"));
  EXPECT_EQ(link_of("kata-b"), "/opt/art/kata-a");
  EXPECT_THAT(text("opt/art/kata-a/vmlinuz"), testing::StrEq("x"));
  EXPECT_FALSE(std::filesystem::is_symlink(scratch.path() / "opt/art/kata-a"));
}

TEST_F(KataKeeperTest, LeavesAnAdministratorsFolderBelowOrInTheLinksPlace) {
  scratch.remove("opt/art/kata-a");
  add_files("opt/art/kata-a/deep");
  scratch.link("mnt/art", "/opt/art");
  for (const char* const folder : {"/opt/art/kata-a/deep", "/mnt/art/kata-a/deep"}) {
    want(std::string("- {name: kata-a, artifacts: {url: \"file://") + folder + "\"}}\n", {"kata-a"});
    EXPECT_THAT(settle().ready, IsEmpty()) << folder;
    EXPECT_TRUE(says("kata-a", HandlerState::blocked)) << folder;
    EXPECT_THAT(why_of("kata-a"), HasSubstr("/opt/art/kata-a is a folder that Ferry did not make"));
    EXPECT_EQ(text("opt/art/kata-a/deep/vmlinuz"), "x") << folder;
  }
  add_files("opt/art/kata-a");
  for (const char* const folder : {"/mnt/art/kata-a", "/opt/art/kata-a", "/opt/art/kata-a/"}) {
    want(std::string("- {name: kata-a, artifacts: {url: \"file://") + folder + "\"}}\n", {"kata-a"});
    EXPECT_THAT(settle().ready, ElementsAre("kata-a")) << folder << ": " << why_of("kata-a");
    EXPECT_EQ(text("opt/art/kata-a/vmlinuz"), "x") << folder;
    EXPECT_FALSE(std::filesystem::is_symlink(scratch.path() / "opt/art/kata-a")) << folder;
  }
  want(kTwoClasses, {"kata-b"}, {"kata-a"});
  settle();
  EXPECT_FALSE(host.exists("etc/ferry/kata/kata-a")) << why_of("kata-a");
  EXPECT_EQ(text("opt/art/kata-a/vmlinuz"), "x") << "hostd removes no folder that Ferry did not make";
}

TEST_F(KataKeeperTest, LeavesAnAdministratorsLinkWhereTheClassNamesItAsItsFolder) {
  scratch.remove("opt/art/kata-a");
  add_files("opt/art/kata-a-v3");
  add_files("opt/art/kata-a-v3/deep");
  scratch.link("mnt/art", "/opt/art");
  scratch.link("srv/way", "../opt/art/kata-a");
  for (const char* const target : {"kata-a-v3", "/opt/art/kata-a-v3"}) {
    scratch.link("opt/art/kata-a", target);
    for (const char* const folder : {"/opt/art/kata-a/deep", "/mnt/art/kata-a/deep", "/srv/way/deep"}) {
      want(std::string("- {name: kata-a, artifacts: {url: \"file://") + folder + "\"}}\n", {"kata-a"});
      settle();
      EXPECT_TRUE(says("kata-a", HandlerState::blocked)) << folder;
      EXPECT_THAT(why_of("kata-a"), HasSubstr("the way to it goes through /opt/art/kata-a")) << folder;
      EXPECT_EQ(link_of("kata-a"), target) << folder;
    }
    for (const char* const folder :
         {"/opt/art/kata-a", "/opt/art/kata-a/", "/mnt/art/kata-a", "/srv/way", "/opt/art/kata-a"}) {
      want(std::string("- {name: kata-a, artifacts: {url: \"file://") + folder + "\"}}\n", {"kata-a"});
      EXPECT_THAT(settle().ready, ElementsAre("kata-a")) << folder << ": " << why_of("kata-a");
      EXPECT_FALSE(said_of("kata-a").has_value()) << folder << ": " << why_of("kata-a");
      EXPECT_EQ(link_of("kata-a"), target) << folder << ", and the class is installed the second time";
    }
    EXPECT_EQ(text("opt/art/kata-a/vmlinuz"), "x") << "the link does not lead to itself";
    scratch.remove("opt/art/kata-a");
  }
}

TEST_F(KataKeeperTest, ReadsNoFileOfTheHostByARecord) {
  const std::string version = "sha256-" + std::string(64, 'a');
  scratch.remove("opt/art/kata-a");
  scratch.file("etc/secret.toml", "a secret");
  pull("kata-a", version, "registry.example/a:1");
  for (const char* const wrong : {"/etc/secret.toml", "../../../../../etc/secret.toml"}) {
    scratch.file(
        "opt/art/.ferry/kata-a/" + version + ".json",
        R"({"version": 1, "url": "registry.example/a:1", "digest": "sha256:aa", "configuration": ")" +
            std::string(wrong) + R"(", "files": []})");
    want(kPulledClass, {"kata-a"});
    settle();
    EXPECT_TRUE(says("kata-a", HandlerState::missing_artifact)) << wrong;
    EXPECT_THAT(why_of("kata-a"), HasSubstr("it names a file that is not of the artifact")) << wrong;
    EXPECT_FALSE(host.exists("etc/ferry/kata/kata-a")) << wrong;
  }
}

TEST_F(KataKeeperTest, ReadsNoFileOfTheHostByALinkInAPulledArtifact) {
  constexpr const char* kVersion = "sha256-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
  const std::string store = "opt/art/.ferry/kata-a/";
  scratch.file("etc/secret.toml", "a secret");
  scratch.link(store + kVersion + "/configuration.toml", "/etc/secret.toml");
  scratch.file(store + kVersion + ".json",
               R"({"version": 1, "url": "registry.example/a:2", "digest": "sha256:aa",)"
               R"( "configuration": "configuration.toml", "files": []})");
  scratch.link("opt/art/kata-a", std::string(".ferry/kata-a/") + kVersion);
  want("- {name: kata-a, artifacts: {url: \"registry.example/a:2\"}}\n", {"kata-a"});
  round();
  EXPECT_TRUE(says("kata-a", HandlerState::blocked));
  EXPECT_THAT(why_of("kata-a"), AllOf(HasSubstr("No such file or directory"), Not(HasSubstr("secret"))));
}

TEST_F(KataKeeperTest, LeavesAClassAsItIsWhileItsNewArtifactIsFetched) {
  want(kOneClass, {"kata-a"});
  settle();
  const std::string before = text(kMain);
  want("- {name: kata-a, artifacts: {url: \"registry.example/a:2\"}}\n", {"kata-a"});
  const auto said = settle();
  EXPECT_THAT(said.ready, ElementsAre("kata-a")) << "as it was";
  EXPECT_TRUE(says("kata-a", HandlerState::missing_artifact));
  EXPECT_EQ(text(kMain), before);
  EXPECT_TRUE(host.exists("etc/ferry/kata/kata-a/configuration.toml"));
  EXPECT_EQ(daemon->acts, 1);
}

TEST_F(KataKeeperTest, OneClassThatCannotBeHereKeepsNoOtherFromIt) {
  want(
      "- {name: kata-a, artifacts: {url: \"file:///srv/gpu\"}}\n"
      "- {name: kata-b, shim: /opt/containerd-shim-kata-none, artifacts: {url: \"file:///srv/gpu\"}}\n"
      "- {name: kata-snp, artifacts: {url: \"file:///srv/gpu\"}}\n",
      {"kata-a", "kata-b", "kata-snp"});
  const auto said = settle();
  EXPECT_THAT(said.ready, ElementsAre("kata-a"));
  EXPECT_TRUE(says("kata-b", HandlerState::blocked));
  EXPECT_THAT(why_of("kata-b"), HasSubstr("/opt/containerd-shim-kata-none"));
  EXPECT_TRUE(says("kata-snp", HandlerState::blocked) || says("kata-snp", HandlerState::missing_artifact));
}

TEST_F(KataKeeperTest, ConfidentialClassesGoByTheModeThatTheFileSays) {
  using State = ConfidentialMode::State;
  scratch.file("sys/module/kvm_amd/parameters/sev_snp", "Y\n");
  const auto want_in = [&](State mode) {
    want("- {name: kata-snp, artifacts: {url: \"file:///srv/gpu\"}}\n", {"kata-snp"});
    desired.confidential_mode = mode;
    write_desired();
    return settle().ready;
  };
  for (const State mode : {State::off, State::devtools, State::failed}) {
    EXPECT_THAT(want_in(mode), IsEmpty()) << ferry::kata::text(mode);
    EXPECT_TRUE(says("kata-snp", HandlerState::blocked));
    EXPECT_THAT(why_of("kata-snp"),
                HasSubstr(std::string("confidential computing is ") + ferry::kata::text(mode)));
    EXPECT_EQ(daemon->acts, 0);
  }
  EXPECT_THAT(want_in(State::on), ElementsAre("kata-snp"));
  EXPECT_THAT(want_in(State::unknown), ElementsAre("kata-snp")) << "nobody says it: no reason to refuse";
}

TEST_F(KataKeeperTest, WhatLeavesLosesItsLabelFirst) {
  want(kTwoClasses, {"kata-a", "kata-b"});
  settle();
  const std::string before = text(kMain);
  want(kTwoClasses, {"kata-b"});
  const auto said = settle();
  EXPECT_THAT(said.ready, ElementsAre("kata-b")) << "so the label goes";
  EXPECT_TRUE(says("kata-a", HandlerState::leaving));
  EXPECT_EQ(text(kMain), before) << "in another order they would be the same";
  EXPECT_TRUE(host.exists("etc/ferry/kata/kata-a/configuration.toml"));
  EXPECT_EQ(daemon->acts, 1);
  want(kTwoClasses, {"kata-b"}, {"kata-a"});
  EXPECT_EQ(settle(), (HandlersFile{.ready = {"kata-b"}, .generation = 3}));
  EXPECT_THAT(text(kMain), AllOf(Not(HasSubstr("kata-a")), HasSubstr("kata-b")));
  EXPECT_FALSE(host.exists("etc/ferry/kata/kata-a"));
  EXPECT_FALSE(host.exists("opt/art/kata-a"));
  EXPECT_TRUE(host.exists("opt/art/kata-b"));
  EXPECT_EQ(daemon->acts, 2);
}

// As after a downgrade: containerd 1.6 starts no shim by `runtime_path`.
TEST_F(KataKeeperTest, WhatAnOlderContainerdCannotStartIsNotReadyAndIsWrittenAnewOnce) {
  want(kTwoClasses, {"kata-a", "kata-b"});
  settle();
  release = must(ContainerdRelease::parse("1.6.20"));
  begin();
  desired.permitted = false;
  write_desired();
  EXPECT_THAT(settle().ready, IsEmpty());
  want(kTwoClasses, {"kata-a", "kata-b"});
  EXPECT_THAT(settle().ready, ElementsAre("kata-a", "kata-b"));
  EXPECT_THAT(text(kMain), Not(HasSubstr("runtime_type = \"io.containerd.kata")));
  EXPECT_EQ(daemon->acts, 1);
  const std::string by_path = text(kMain);
  settle();
  // And back: by its path a shim is started by each release.
  release = kRelease;
  begin();
  EXPECT_THAT(settle().ready, ElementsAre("kata-a", "kata-b"));
  EXPECT_EQ(text(kMain), by_path);
  EXPECT_EQ(daemon->acts, 0);
  want(kTwoClasses, {"kata-b"});  // the other one stays until its label is gone
  EXPECT_THAT(settle().ready, ElementsAre("kata-b"));
  EXPECT_EQ(text(kMain), by_path);
}

TEST_F(KataKeeperTest, WhatComesDoesNotWaitForWhatLeaves) {
  want(kTwoClasses, {"kata-a"});
  settle();
  want(kTwoClasses, {"kata-b"});
  EXPECT_THAT(settle().ready, ElementsAre("kata-b"));
  EXPECT_TRUE(says("kata-a", HandlerState::leaving));
  EXPECT_THAT(text(kMain), AllOf(HasSubstr("runtimes.kata-a]"), HasSubstr("runtimes.kata-b]")));
}

TEST_F(KataKeeperTest, AClassThatIsDesiredAgainIsReadyAgain) {
  want(kOneClass, {"kata-a"});
  settle();
  want(kOneClass, {});
  EXPECT_THAT(settle().ready, IsEmpty());
  want(kOneClass, {"kata-a"});
  EXPECT_EQ(settle(), (HandlersFile{.ready = {"kata-a"}, .generation = 3}));
  EXPECT_EQ(daemon->acts, 1);
}

TEST_F(KataKeeperTest, WhatLeavesStaysWhileAPodRunsWithIt) {
  want(kOneClass, {"kata-a"});
  settle();
  daemon->running = {{.name_space = "ns", .name = "web", .handler = "kata-a", .sandbox = "1"},
                     {.name_space = "ns", .name = "other", .handler = "", .sandbox = "2"}};
  want(kOneClass, {}, {"kata-a"});
  const std::string before = everything();
  std::vector<seconds> pauses;
  for (int i = 0; i < 4; ++i) {
    const auto again = round().again;
    ASSERT_TRUE(again);
    pauses.push_back(std::chrono::duration_cast<seconds>(*again - now));
    now = *again;
  }
  EXPECT_THAT(pauses, ElementsAre(seconds(10), seconds(20), seconds(40), seconds(40)));
  EXPECT_TRUE(says("kata-a", HandlerState::blocked));
  EXPECT_THAT(why_of("kata-a"), HasSubstr("ns/web"));
  EXPECT_THAT(said().ready, IsEmpty());
  EXPECT_EQ(everything(), before);
  daemon->running.clear();
  EXPECT_EQ(settle(), (HandlersFile{.ready = {}, .generation = 2}));
  EXPECT_EQ(text(kMain), kMainText);
  EXPECT_FALSE(host.exists("opt/art/kata-a"));
}

TEST_F(KataKeeperTest, TakesAllOfOursAwayWhenNoClassIsDesired) {
  want(kTwoClasses, {"kata-a", "kata-b"});
  settle();
  want(kTwoClasses, {}, {"kata-a", "kata-b"});
  EXPECT_EQ(settle(), (HandlersFile{.ready = {}, .generation = 2}));
  EXPECT_EQ(text(kMain), kMainText);
  EXPECT_FALSE(host.exists("etc/ferry/kata/kata-a"));
  EXPECT_FALSE(host.exists("var/lib/ferry-hostd/kata/installed.json"));
}

TEST_F(KataKeeperTest, RemovesWhatOneThatWasKilledHasLeft) {
  want(kTwoClasses, {"kata-a"});
  settle();
  scratch.file("etc/ferry/kata/kata-b/configuration.toml", "x");
  desired.permitted = false;
  write_desired();
  settle();
  EXPECT_TRUE(says("kata-b", HandlerState::pending));
  EXPECT_THAT(said().ready, ElementsAre("kata-a"));
  desired.permitted = true;
  write_desired();
  EXPECT_EQ(settle(), (HandlersFile{.ready = {"kata-a"}, .generation = 1}));
  EXPECT_FALSE(host.exists("etc/ferry/kata/kata-b"));
  EXPECT_EQ(daemon->acts, 1);
}

TEST_F(KataKeeperTest, SaysWhatItCannotReadAndPromisesNothingThatLeaves) {
  want(kTwoClasses, {"kata-a", "kata-b"});
  settle();
  want(kTwoClasses, {"kata-b"});
  settle();
  const std::string before = text(kMain);
  scratch.file(api::kDesiredClassesFile, "{");
  auto said = settle();
  EXPECT_THAT(said.error, HasSubstr("/var/lib/ferry/kata-classes.json"));
  EXPECT_THAT(said.ready, ElementsAre("kata-b"));
  want(kTwoClasses, {"kata-c"});
  said = settle();
  EXPECT_THAT(said.error, HasSubstr("kata-c"));
  EXPECT_EQ(said.generation, 3U);
  EXPECT_THAT(said.ready, ElementsAre("kata-b"));
  EXPECT_EQ(text(kMain), before);
  EXPECT_EQ(daemon->acts, 1);
}

TEST_F(KataKeeperTest, BeginsNothingWhileTheRuntimeDoesNotAnswer) {
  want(kOneClass, {"kata-a"});
  settle();
  daemon->runs = false;
  want(kTwoClasses, {"kata-b"}, {"kata-a"});
  const std::string before = everything();
  EXPECT_FALSE(round().answered);
  EXPECT_THAT(said().ready, ElementsAre("kata-a")) << "no pod is started meanwhile either";
  EXPECT_THAT(said().error, HasSubstr("does not answer"));
  EXPECT_EQ(everything(), before);
}

TEST_F(KataKeeperTest, PutsBackWhatFailsAndTriesAgainWithGrowingPauses) {
  daemon->forgets = "kata-a";
  want(kOneClass, {"kata-a"});
  std::vector<seconds> pauses;
  for (int i = 0; i < 4; ++i) {
    const int acts = daemon->acts;
    const auto again = round().again;
    ASSERT_TRUE(again);
    EXPECT_EQ(daemon->acts, acts + 2) << "with it, and with what was there before";
    EXPECT_EQ(text(kMain), kMainText);
    EXPECT_FALSE(host.exists("etc/ferry/kata/kata-a")) << "Kata's own files";
    EXPECT_TRUE(says("kata-a", HandlerState::failed));
    EXPECT_FALSE(said().applying);
    ++desired.generation;  // as with another permission
    write_desired();
    pauses.push_back(std::chrono::duration_cast<seconds>(*again - now));
    now += seconds(1);
    round();
    EXPECT_EQ(daemon->acts, acts + 2) << "not at once";
    EXPECT_TRUE(says("kata-a", HandlerState::failed));
    now = *again;
  }
  EXPECT_THAT(pauses, ElementsAre(seconds(10), seconds(20), seconds(40), seconds(40)));
  daemon->forgets.clear();
  EXPECT_THAT(settle().ready, ElementsAre("kata-a"));
}

TEST_F(KataKeeperTest, AnotherSnapshotterIsProvenToo) {
  const std::string list = "- {name: kata-a, artifacts: {url: 'file:///srv/gpu'}, snapshotter: ";
  constexpr const char* kOfKata = "etc/ferry/kata/kata-a/config.d/60-ferry.toml";
  want(list + "nydus}\n", {"kata-a"});
  EXPECT_THAT(settle().ready, ElementsAre("kata-a"));
  EXPECT_EQ(daemon->acts, 1);
  const std::string before = text(kMain);
  const std::string of_kata = text(kOfKata);
  daemon->keeps_snapshotter = "nydus";  // whatever is written
  want(list + "erofs, configuration: {hypervisor: {qemu: {default_memory: 4096}}}}\n", {"kata-a"});
  settle();
  EXPECT_TRUE(says("kata-a", HandlerState::failed)) << why_of("kata-a");
  EXPECT_EQ(daemon->acts, 3) << "with it, and with what was there before";
  EXPECT_EQ(text(kMain), before);
  EXPECT_EQ(text(kOfKata), of_kata);
  daemon->keeps_snapshotter.reset();
  now += seconds(100);
  EXPECT_THAT(settle().others, IsEmpty());
  EXPECT_THAT(text(kMain), HasSubstr("erofs"));
  EXPECT_THAT(text(kOfKata), HasSubstr("4096"));
}

TEST_F(KataKeeperTest, TriesAnotherDesiredStateAtOnce) {
  daemon->forgets = "kata-a";
  want(kTwoClasses, {"kata-a"});
  settle();
  ASSERT_TRUE(says("kata-a", HandlerState::failed));
  want(kTwoClasses, {"kata-b"});
  EXPECT_THAT(settle().ready, ElementsAre("kata-b"));
}

TEST_F(KataKeeperTest, RefusesARestartThatWouldEndPods) {
  daemon->harms = "containerd.service has KillMode=control-group";
  daemon->running = {{.name_space = "ns", .name = "web", .handler = "", .sandbox = "1"}};
  want(kOneClass, {"kata-a"});
  const std::string before = everything();
  settle();
  EXPECT_TRUE(says("kata-a", HandlerState::blocked));
  EXPECT_THAT(why_of("kata-a"), HasSubstr("KillMode"));
  EXPECT_EQ(everything(), before);
  EXPECT_EQ(daemon->acts, 0);
}

TEST_F(KataKeeperTest, LeavesTheRestartToAPersonWhereThatIsAskedFor) {
  want(kOneClass, {"kata-a"}, {}, "loadModules: false\nrestart: none\n");
  settle();
  EXPECT_TRUE(says("kata-a", HandlerState::blocked));
  EXPECT_THAT(why_of("kata-a"), HasSubstr("Ferry does not restart it here"));
  EXPECT_THAT(text(kMain), HasSubstr("kata-a"));
  EXPECT_THAT(said().ready, IsEmpty());
  must(daemon->act());
  EXPECT_EQ(settle(), (HandlersFile{.ready = {"kata-a"}, .generation = 1}));
}

TEST_F(KataKeeperTest, RunsNoProgramThatTheClusterNames) {
  const std::string before = text(kMain);
  want(kOneClass, {"kata-a"}, {}, "loadModules: false\nrestart: {command: [/usr/bin/true]}\n");
  EXPECT_THAT(settle().error, HasSubstr("command"));
  EXPECT_EQ(text(kMain), before);
  EXPECT_EQ(daemon->acts, 0);
}

TEST_F(KataKeeperTest, WaitsForAnotherChangeOfTheHost) {
  want(kOneClass, {"kata-a"});
  {
    const auto other = must(NodeLock::take(host, milliseconds(0)));
    settle();
    EXPECT_TRUE(says("kata-a", HandlerState::pending));
    EXPECT_EQ(text(kMain), kMainText);
  }
  EXPECT_THAT(settle().ready, ElementsAre("kata-a"));
}

TEST_F(KataKeeperTest, SaysOnlyWhatIsReadyWhereNoFileIsObeyed) {
  want(kOneClass, {"kata-a"});
  KataKeeper only({.host = &host, .writer = &writer, .asked = daemon.get()}, {});
  EXPECT_TRUE(only.round(now).answered);
  EXPECT_EQ(text(api::kReadyHandlersFile), handlers_file_text({}));
  EXPECT_EQ(text(kMain), kMainText);
}

/// From two classes to one that stays and one that comes, at once.
struct Moving : Node {
  Moving() {
    scratch.link("opt/art/kata-c", "/srv/gpu");
    want(kTwoClasses, {"kata-a", "kata-b"});
    settle();
    want(std::string(kTwoClasses) + "- {name: kata-c, artifacts: {url: \"file:///srv/gpu\"}}\n",
         {"kata-b", "kata-c"}, {"kata-a"});
    before = text(kMain);
    host.writes = 0;
  }
  void expect_done() {
    for (int i = 0; i < 3; ++i) {
      settle();
      now += seconds(100);
    }
    EXPECT_EQ(said(), (HandlersFile{.ready = {"kata-b", "kata-c"}, .generation = 2}));
    EXPECT_THAT(text(kMain), AllOf(Not(HasSubstr("kata-a]")), HasSubstr("kata-b]"), HasSubstr("kata-c]")));
    EXPECT_FALSE(host.exists("etc/ferry/kata/kata-a/configuration.toml"));
    EXPECT_FALSE(host.exists(kRuntimeRecord));
  }
  std::string before;
};

TEST(KataKeeperAtEachWrite, ThatFailsTheNextTriesGoOn) {
  int failures = 0;
  for (int at = 0; at < 30; ++at) {
    Moving node;
    node.host.fails_at = at;
    node.settle();
    if (node.host.writes <= at) break;
    ++failures;
    EXPECT_TRUE(node.daemon->runs);
    node.host.fails_at = -1;
    node.expect_done();
  }
  EXPECT_GE(failures, 8);
}

TEST(KataKeeperAtEachWrite, ThatIsItsLastTheNextOneGoesOn) {
  int deaths = 0;
  for (const bool before : {true, false}) {
    for (int at = 0; at < 30; ++at) {
      Moving node;
      const pid_t pid = ::fork();
      if (pid == 0) {
        (before ? node.host.dies_before : node.host.dies_after) = at;
        node.settle();
        ::_exit(EXIT_FAILURE);  // it went through
      }
      int status = 0;
      ASSERT_EQ(::waitpid(pid, &status, 0), pid);
      if (WEXITSTATUS(status) != EXIT_SUCCESS) break;
      ++deaths;
      const auto said = node.said();
      EXPECT_TRUE(!node.host.exists(kRuntimeRecord) || said.applying) << "its Lease is kept";
      node.begin();
      EXPECT_TRUE(node.daemon->runs);
      node.expect_done();
    }
  }
  EXPECT_GE(deaths, 16);
}

}  // namespace
}  // namespace ferry::kata
