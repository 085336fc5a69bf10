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

#include "hostfs/locks.h"
#include "kata-manager/runtimes/runtime_record.h"
#include "tests/kata-manager/kept_node.h"

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

TEST_F(KataKeeperTest, FindsTheKernelInAnyFolderOfTheArtifact) {
  scratch.remove("srv/gpu/vmlinuz");
  scratch.file("srv/gpu/guest/gpu/vmlinuz", "x");
  want(kOneClass, {"kata-a"});
  EXPECT_THAT(settle().ready, ElementsAre("kata-a")) << why_of("kata-a");
  EXPECT_THAT(text("etc/ferry/kata/kata-a/config.d/60-ferry.toml"),
              HasSubstr("kernel = \"/srv/gpu/guest/gpu/vmlinuz\""));
}

TEST_F(KataKeeperTest, ListsNoFolderOfTheHostThatIsTooDeep) {
  std::string deep = "srv/gpu";
  for (int i = 0; i < 50; ++i) deep += "/d";
  scratch.directory(deep);
  // A listing would find it first.
  ASSERT_EQ(::mkfifo((scratch.path() / deep / "pipe").c_str(), 0600), 0);
  want(kOneClass, {"kata-a"});
  EXPECT_THAT(settle().ready, IsEmpty());
  EXPECT_TRUE(says("kata-a", HandlerState::blocked));
  EXPECT_THAT(why_of("kata-a"), HasSubstr("is more than 40 levels deep"));
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
                HasSubstr(std::string("confidential computing is ") + std::string(ferry::kata::text(mode))));
    EXPECT_EQ(daemon->acts, 0);
  }
  EXPECT_THAT(want_in(State::on), ElementsAre("kata-snp"));
  EXPECT_THAT(want_in(State::unknown), ElementsAre("kata-snp")) << "nobody says it: no reason to refuse";
  by_registers.state = State::off;
  by_registers.by_registers = "off by the registers of 0000:17:00.0";
  EXPECT_THAT(want_in(State::on), IsEmpty()) << "a register counts more";
  EXPECT_THAT(why_of("kata-snp"), HasSubstr("off by the registers of 0000:17:00.0"));
  by_registers.state = State::on;
  EXPECT_THAT(want_in(State::off), ElementsAre("kata-snp"));
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

TEST_F(KataKeeperTest, RemovesArtifactsWhereTheyWereInstalledWhateverTheFileNamesNow) {
  const std::string version = "sha256-" + std::string(64, 'a');
  const std::string kOther =
      "version: v2\nartifactsDir: /opt/other\nloadModules: false\nruntimeClasses:\n"
      "- {name: kata-b, artifacts: {url: \"file:///srv/gpu\"}}\n";
  for (const std::string& config : {std::string("version: v2\nruntimeClasses: []\n"), kOther}) {
    const bool keeps_b = config == kOther;
    scratch.remove("opt/art/kata-a");
    pull("kata-a", version, "registry.example/a:1");
    want(std::string(kPulledClass) + "- {name: kata-b, artifacts: {url: \"file:///srv/gpu\"}}\n",
         {"kata-a", "kata-b"});
    ASSERT_THAT(settle().ready, ElementsAre("kata-a", "kata-b")) << why_of("kata-a");
    ASSERT_EQ(link_of("kata-a"), ".ferry/kata-a/" + version);
    want("", {}, {"kata-a", "kata-b"});
    desired.config.text = config;
    if (keeps_b) desired.classes = {"kata-b"};
    if (keeps_b) desired.unlabelled = {"kata-a"};
    write_desired();
    settle();
    EXPECT_FALSE(host.exists("etc/ferry/kata/kata-a")) << why_of("kata-a");
    EXPECT_EQ(link_of("kata-a"), "there is none") << config;
    EXPECT_FALSE(host.exists("opt/art/.ferry/kata-a")) << config;
    EXPECT_EQ(host.exists("etc/ferry/kata/kata-b"), keeps_b);
  }
  EXPECT_EQ(host.link_target("opt/other/kata-b").value_or(""), "/srv/gpu");
  EXPECT_THAT(text("var/lib/ferry-hostd/kata/installed.json"), HasSubstr("/opt/other"));
}

TEST_F(KataKeeperTest, RemovesArtifactsWhereTheyWereInstalledOneClassAfterTheOther) {
  want(kTwoClasses, {"kata-a", "kata-b"});
  EXPECT_THAT(settle().ready, ElementsAre("kata-a", "kata-b"));
  daemon->running = {{.name_space = "n", .name = "p", .handler = "kata-b", .sandbox = "s"}};
  want("", {}, {"kata-a", "kata-b"});
  desired.config.text = "version: v2\nruntimeClasses: []\n";
  write_desired();
  settle();
  EXPECT_EQ(link_of("kata-a"), "there is none");
  EXPECT_EQ(link_of("kata-b"), "/srv/gpu") << "a pod runs with it";
  daemon->running.clear();
  now += seconds(100);
  settle();
  EXPECT_EQ(link_of("kata-b"), "there is none") << why_of("kata-b");
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

TEST_F(KataKeeperTest, AnotherSnapshotterIsVerifiedToo) {
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

}  // namespace
}  // namespace ferry::kata
