// SPDX-License-Identifier: Apache-2.0
// The links to artifacts that the keeper makes, and the folders of others that it leaves.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gmock/gmock.h>

#include "hostfs/locks.h"
#include "kata-manager/runtimes/runtime_record.h"
#include "tests/kata-manager/kept_node.h"
#include "tests/support/log_of.h"

namespace ferry::kata {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

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

TEST_F(KataKeeperTest, RemovesAVersionOnceNoPodCanUseIt) {
  const std::string store = "opt/art/.ferry/kata-a/";
  const std::string first = "sha256-" + std::string(64, 'a');
  const std::string second = "sha256-" + std::string(64, 'b');
  scratch.remove("opt/art/kata-a");
  pull("kata-a", first, "registry.example/a:1");
  want(kPulledClass, {"kata-a"});
  EXPECT_THAT(settle().ready, ElementsAre("kata-a")) << why_of("kata-a");
  daemon->running = {{.name_space = "n", .name = "p", .handler = "kata-a", .sandbox = "s"}};
  pull("kata-a", second, "registry.example/a:2");
  want(kNewerClass, {"kata-a"});
  HandlersFile meanwhile{.ready = {}, .applying = true};
  daemon->at_pods = [&] { meanwhile = said(); };
  EXPECT_THAT(settle().ready, ElementsAre("kata-a")) << why_of("kata-a");
  EXPECT_EQ(meanwhile, said()) << "the change is published before old versions are looked for";
  daemon->at_pods = {};
  EXPECT_EQ(link_of("kata-a"), ".ferry/kata-a/" + second);
  EXPECT_TRUE(host.exists(store + first + "/vmlinuz")) << "the pod began with it";
  daemon->running.clear();
  {
    const auto fetch_at_work = test::must(lock_artifacts(host, "opt/art"));
    settle();
    EXPECT_TRUE(host.exists(store + first));
  }
  EXPECT_THAT(settle().ready, ElementsAre("kata-a"));
  EXPECT_FALSE(host.exists(store + first));
  EXPECT_FALSE(host.exists(store + first + ".json"));
  EXPECT_TRUE(host.exists(store + second + "/vmlinuz"));
  EXPECT_FALSE(said_of("kata-a").has_value()) << why_of("kata-a");
}

TEST_F(KataKeeperTest, SaysOnceWhyAVersionStays) {
  const std::string old = "opt/art/.ferry/kata-a/sha256-" + std::string(64, 'b');
  scratch.remove("opt/art/kata-a");
  pull("kata-a", "sha256-" + std::string(64, 'a'), "registry.example/a:1");
  scratch.directory(old);
  scratch.link("opt/art/k8s-kata-manager.pid", "elsewhere");
  const test::LogOf log;
  want(kPulledClass, {"kata-a"});
  EXPECT_THAT(settle().ready, ElementsAre("kata-a")) << why_of("kata-a");
  round();
  EXPECT_TRUE(host.exists(old));
  constexpr const char* kWhy =
      "kata-a: old versions of its artifact stay for now: /opt/art/k8s-kata-manager.pid";
  const std::string said = log.text();
  const auto at = said.find(kWhy);
  ASSERT_NE(at, std::string::npos) << said;
  EXPECT_EQ(said.find(kWhy, at + 1), std::string::npos) << said;
  scratch.remove("opt/art/k8s-kata-manager.pid");
  round();
  EXPECT_FALSE(host.exists(old));
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

// hostd's container has only the present folder of artifacts, or all others are read-only.
TEST_F(KataKeeperTest, RemembersAFolderOfArtifactsThatItCannotReach) {
  constexpr const char* kRecord = "var/lib/ferry-hostd/kata/installed.json";
  const auto leave_elsewhere = [&] {
    want("", {}, {"kata-a"});
    desired.config.text = "version: v2\nartifactsDir: /opt/other\nruntimeClasses: []\n";
    write_desired();
    settle();
  };
  const auto folder = scratch.path() / "opt/art";
  want(kOneClass, {"kata-a"});
  ASSERT_THAT(settle().ready, ElementsAre("kata-a")) << why_of("kata-a");
  std::filesystem::rename(folder, scratch.path() / "opt/aside");
  leave_elsewhere();
  EXPECT_FALSE(host.exists("etc/ferry/kata/kata-a")) << why_of("kata-a");
  EXPECT_THAT(text(kRecord), AllOf(HasSubstr("/opt/art"), Not(HasSubstr("/opt/other"))));
  std::filesystem::rename(scratch.path() / "opt/aside", folder);

  want(kOneClass, {"kata-a"});
  ASSERT_THAT(settle().ready, ElementsAre("kata-a")) << why_of("kata-a");
  if (::mount(folder.c_str(), folder.c_str(), nullptr, MS_BIND, nullptr) == 0) {
    const test::LogOf log;
    const bool is_read_only =
        ::mount(nullptr, folder.c_str(), nullptr, MS_BIND | MS_REMOUNT | MS_RDONLY, nullptr) == 0;
    leave_elsewhere();
    ::umount2(folder.c_str(), MNT_DETACH);
    ASSERT_TRUE(is_read_only);
    EXPECT_FALSE(host.exists("etc/ferry/kata/kata-a")) << why_of("kata-a");
    EXPECT_EQ(link_of("kata-a"), "/srv/gpu");
    EXPECT_THAT(text(kRecord), HasSubstr("/opt/art"));
    EXPECT_THAT(log.text(), HasSubstr("artifacts of kata-a stay in /opt/art, which is read-only here"));
    want(kOneClass, {"kata-a"});
    ASSERT_THAT(settle().ready, ElementsAre("kata-a")) << why_of("kata-a");
  }

  leave_elsewhere();
  EXPECT_EQ(link_of("kata-a"), "there is none") << why_of("kata-a");
  EXPECT_FALSE(host.exists(kRecord));
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

}  // namespace
}  // namespace ferry::kata
