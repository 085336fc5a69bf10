// SPDX-License-Identifier: Apache-2.0
#include "host/system/agent_folders.h"

#include <chrono>
#include <fcntl.h>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <vector>

#include <gmock/gmock.h>

#include "hostfs/locks.h"
#include "tests/support/as_user.h"
#include "tests/support/log_of.h"
#include "tests/support/must.h"
#include "tests/support/scratch_directory.h"

namespace ferry::host {
namespace {

using testing::HasSubstr;

constexpr const char* kFolder = "var/lib/ferry";
constexpr gid_t kAgent = 64'711;

bool is_root() {
  return ::geteuid() == 0;
}

class AgentFoldersTest : public testing::Test {
 protected:
  AgentFoldersTest() {
    if (::chmod(tree_.path().c_str(), 0755) != 0) throw std::runtime_error("chmod");
  }
  struct stat status(const std::filesystem::path& relative) const {
    struct stat out {};
    EXPECT_EQ(::lstat((tree_.path() / relative).c_str(), &out), 0) << relative;
    return out;
  }
  mode_t mode(const std::filesystem::path& relative) const { return status(relative).st_mode & 07777U; }
  void change_mode(const std::filesystem::path& relative, mode_t to) const {
    ASSERT_EQ(::chmod((tree_.path() / relative).c_str(), to), 0);
  }
  std::size_t give(const std::filesystem::path& folder, Giving giving = Giving::folder) const {
    const auto given = test::must(give_to_group(host_, folder, group_, giving));
    for (const Error& error : given.errors) ADD_FAILURE() << error.message;
    return given.changed;
  }

  /// Makes 60 levels of folders, more than a look has, and returns the last one.
  std::filesystem::path make_deep(std::filesystem::path folder) {
    for (int level = 0; level < 60; ++level) folder /= "d";
    tree_.directory(folder);
    return folder;
  }

  test::ScratchDirectory tree_;
  HostFs host_{tree_.path()};
  // Only root can give a file to a group that it is not in.
  const gid_t group_ = is_root() ? kAgent : ::getegid();
};

TEST_F(AgentFoldersTest, AFolderIsMadeAndTheGroupMayWriteIt) {
  EXPECT_EQ(give(kFolder), 1U);
  EXPECT_EQ(status(kFolder).st_gid, group_);
  EXPECT_EQ(mode(kFolder), 02775U);
  EXPECT_EQ(mode("var/lib") & 07020U, 0U) << "those above it are nobody else's";
}

TEST_F(AgentFoldersTest, TheSecondTimeNothingIsWritten) {
  tree_.file("opt/ferry/kata/.ferry/kata-gpu/record.json", "{}");
  EXPECT_EQ(give("opt/ferry/kata", Giving::tree), 4U) << "the lock is made";
  const auto before = status("opt/ferry/kata/.ferry/kata-gpu/record.json").st_ctim;
  EXPECT_EQ(give("opt/ferry/kata", Giving::tree), 0U);
  const auto after = status("opt/ferry/kata/.ferry/kata-gpu/record.json").st_ctim;
  EXPECT_EQ(before.tv_sec, after.tv_sec);
  EXPECT_EQ(before.tv_nsec, after.tv_nsec);
}

TEST_F(AgentFoldersTest, OfAFolderAloneTheFilesStayAsTheyAre) {
  tree_.file("var/lib/ferry/kata/record.json", "a registry's credentials");
  change_mode("var/lib/ferry/kata/record.json", 0600);
  give(kFolder);
  EXPECT_EQ(mode("var/lib/ferry/kata/record.json"), 0600U);
  EXPECT_EQ(mode("var/lib/ferry/kata") & 0020U, 0U);
}

TEST_F(AgentFoldersTest, NoLinkIsFollowedAndNoSpecialFileIsTouched) {
  tree_.file("etc/shadow", "secret");
  tree_.file("etc/folder/file", "secret");
  for (const char* const file : {"etc/shadow", "etc/folder/file"}) change_mode(file, 0600);
  tree_.directory("opt/kata/.ferry/a");
  tree_.link("opt/kata/.ferry/a/file", tree_.path() / "etc/shadow");
  tree_.link("opt/kata/.ferry/a/folder", "../../../../etc/folder");
  ASSERT_EQ(::mkfifo((tree_.path() / "opt/kata/.ferry/a/fifo").c_str(), 0600), 0);
  tree_.file("opt/kata/.ferry/a/program", "with set-user-ID");
  change_mode("opt/kata/.ferry/a/program", 04755);
  EXPECT_EQ(give("opt/kata", Giving::tree), 3U) << "the lock, the store, and the class's folder in it";
  for (const char* const file : {"etc/shadow", "etc/folder/file", "opt/kata/.ferry/a/fifo"})
    EXPECT_EQ(mode(file), 0600U) << file;
  EXPECT_EQ(mode("opt/kata/.ferry/a/program"), 04755U);
  EXPECT_EQ(status("etc/shadow").st_gid, ::getegid());
}

TEST_F(AgentFoldersTest, OfATreeOnlyWhatIsFerrysOwnIsGiven) {
  tree_.file("opt/kata/k8s-kata-manager.pid", "17");
  tree_.file("opt/kata/.ferry/a/sha256-aa/guest.img", "pulled");
  const std::vector<std::string> others = {
      "opt/kata/local/configuration.toml",  // an administrator's artifact
      "opt/kata/b/configuration.toml",      // of NVIDIA's kata-manager
      "etc/passwd",
  };
  for (const std::string& file : others) {
    tree_.file(file, "root's");
    change_mode(file, 0644);
  }
  std::filesystem::create_hard_link(tree_.path() / "etc/passwd", tree_.path() / "opt/kata/.ferry/a/name");
  change_mode("opt/kata", 0755);
  EXPECT_EQ(give("opt/kata", Giving::tree), 5U);
  EXPECT_EQ(mode("opt/kata"), 0755U) << "hostd alone makes the links in it";
  EXPECT_EQ(status("opt/kata").st_gid, ::getegid());
  for (const char* const folder : {"opt/kata/.ferry", "opt/kata/.ferry/a", "opt/kata/.ferry/a/sha256-aa"})
    EXPECT_EQ(mode(folder), 02775U) << folder;
  for (const char* const file : {"opt/kata/k8s-kata-manager.pid", "opt/kata/.ferry/a/sha256-aa/guest.img"}) {
    EXPECT_EQ(mode(file) & 0060U, 0060U) << file;
    EXPECT_EQ(status(file).st_gid, group_) << file;
  }
  for (const std::string& file : others) {
    EXPECT_EQ(mode(file), 0644U) << file;
    EXPECT_EQ(mode(std::filesystem::path(file).parent_path()) & 07020U, 0U) << file;
    EXPECT_EQ(status(file).st_gid, ::getegid()) << file;
  }
}

TEST_F(AgentFoldersTest, ALinkInThePlaceOfTheStoreIsNotFollowed) {
  tree_.file("etc/containerd/config.toml", "root's");
  change_mode("etc/containerd/config.toml", 0644);
  tree_.directory("opt/kata");
  tree_.link("opt/kata/.ferry", "../../etc");
  tree_.link("opt/kata/k8s-kata-manager.pid", "../../etc/containerd/config.toml");
  for (const Giving giving : {Giving::tree_top, Giving::tree}) {
    const auto given = test::must(give_to_group(host_, "opt/kata", group_, giving));
    EXPECT_EQ(given.changed, 0U);
    ASSERT_EQ(given.errors.size(), 1U);
    EXPECT_EQ(given.errors[0].code, Errc::refused);
    EXPECT_THAT(given.errors[0].message, HasSubstr("/opt/kata/.ferry is a symbolic link or no folder"));
  }
  EXPECT_EQ(mode("etc/containerd/config.toml"), 0644U);
  EXPECT_EQ(mode("etc/containerd") & 07020U, 0U);
}

TEST_F(AgentFoldersTest, ALockWithASecondNameIsMadeAnew) {
  tree_.file("etc/passwd", "root's");
  change_mode("etc/passwd", 0644);
  tree_.directory("opt/kata");
  std::filesystem::create_hard_link(tree_.path() / "etc/passwd",
                                    tree_.path() / "opt/kata/k8s-kata-manager.pid");
  give("opt/kata", Giving::tree_top);
  EXPECT_EQ(status("opt/kata/k8s-kata-manager.pid").st_nlink, 1U);
  EXPECT_EQ(mode("opt/kata/k8s-kata-manager.pid") & 0060U, 0060U);
  EXPECT_EQ(mode("etc/passwd"), 0644U);
  EXPECT_EQ(status("etc/passwd").st_nlink, 1U);
  EXPECT_EQ(host_.read_file("etc/passwd").value(), "root's");
}

TEST_F(AgentFoldersTest, TheAgentWritesOnlyTheStoreOfATree) {
  if (!is_root()) GTEST_SKIP() << "only root can be another user";
  tree_.file("opt/kata/local/configuration.toml", "root's");
  give("opt/kata", Giving::tree);
  const auto path = [&](const char* name) { return tree_.path() / "opt/kata" / name; };
  {
    const test::AsUser agent(kAgent);
    std::error_code failure;
    std::filesystem::rename(path("local"), path("aside"), failure);
    EXPECT_TRUE(failure) << "it was renamed";
    std::filesystem::create_directory_symlink(".ferry/a", path("a"), failure);
    EXPECT_TRUE(failure) << "hostd makes the links of classes";
    std::filesystem::rename(path(".ferry"), path("aside"), failure);
    EXPECT_TRUE(failure) << "it was renamed";
    EXPECT_FALSE(host_.write_file("opt/kata/local/configuration.toml", "the agent's").has_value());
    EXPECT_FALSE(host_.write_file("opt/kata/local/more.toml", "the agent's").has_value());
    EXPECT_TRUE(host_.write_file("opt/kata/.ferry/a/record.json", "the agent's").has_value());
    EXPECT_TRUE(host_.open("opt/kata/k8s-kata-manager.pid", O_RDWR).has_value()) << "the lock";
  }
  EXPECT_EQ(host_.read_file("opt/kata/local/configuration.toml").value(), "root's");
}

/// A folder of artifacts of which the agent's group can write all that is root's.
class TreeOfTheGroup : public AgentFoldersTest {
 protected:
  TreeOfTheGroup() {
    for (const char* const file : {"opt/kata/local/configuration.toml", "opt/kata/mended/configuration.toml",
                                   "opt/kata/.ferry/a/guest.img"})
      tree_.file(file, "root's");
    tree_.link("opt/kata/a", ".ferry/a");
    for (const char* const place : {"opt/kata", "opt/kata/local", "opt/kata/local/configuration.toml"})
      if (::lchown((tree_.path() / place).c_str(), static_cast<uid_t>(-1), group_) != 0)
        throw std::runtime_error("chown");
    change_mode("opt/kata/local", 02775);
    change_mode("opt/kata/local/configuration.toml", 0664);
  }
};

TEST_F(TreeOfTheGroup, TheFolderIsTakenFromTheGroup) {
  for (const mode_t before : {mode_t{02775}, mode_t{03775}}) {
    change_mode("opt/kata", before);
    EXPECT_TRUE(test::must(give_to_group(host_, "opt/kata", group_, Giving::tree_top)).taken);
    EXPECT_EQ(mode("opt/kata"), 0755U);
    EXPECT_FALSE(test::must(give_to_group(host_, "opt/kata", group_, Giving::tree_top)).taken);
  }
  EXPECT_EQ(mode("opt/kata/.ferry") & 0020U, 0020U);
}

TEST_F(TreeOfTheGroup, OthersFoldersThatTheGroupCanWriteAreNamedAndStay) {
  const auto given = test::must(give_to_group(host_, "opt/kata", group_, Giving::tree));
  ASSERT_EQ(given.errors.size(), 1U);
  EXPECT_EQ(given.errors[0].code, Errc::refused);
  EXPECT_THAT(given.errors[0].message, HasSubstr("/opt/kata/local can be written by group " +
                                                 std::to_string(group_) + ", the agent's"));
  EXPECT_THAT(given.errors[0].hint, HasSubstr("`chown -hR root:root /opt/kata/local && chmod -R go-w "
                                              "/opt/kata/local`; then check its content"));
  EXPECT_EQ(mode("opt/kata/local"), 02775U);
  change_mode("opt/kata/local", 0755);
  const auto file = test::must(give_to_group(host_, "opt/kata", group_, Giving::tree));
  ASSERT_EQ(file.errors.size(), 1U);
  EXPECT_THAT(file.errors[0].message, HasSubstr("/opt/kata/local/configuration.toml can be written"));
  change_mode("opt/kata/local/configuration.toml", 0644);
  EXPECT_TRUE(test::must(give_to_group(host_, "opt/kata", group_, Giving::tree)).errors.empty());
}

TEST_F(TreeOfTheGroup, EntriesOfAnotherOwnerAreNamedAndStay) {
  if (!is_root()) GTEST_SKIP() << "only root can give files to another user";
  change_mode("opt/kata/local", 0755);
  change_mode("opt/kata/local/configuration.toml", 0644);
  tree_.link("opt/kata/planted", "local");
  for (const char* const place : {"opt/kata/mended/configuration.toml", "opt/kata/planted"})
    ASSERT_EQ(::lchown((tree_.path() / place).c_str(), kAgent, kAgent), 0);
  const auto given = test::must(give_to_group(host_, "opt/kata", group_, Giving::tree));
  ASSERT_EQ(given.errors.size(), 2U);
  EXPECT_THAT(given.errors[0].message,
              HasSubstr("/opt/kata/mended/configuration.toml belongs to user 64711"));
  EXPECT_THAT(given.errors[0].hint, HasSubstr("`chown -hR root:root /opt/kata/mended && "));
  EXPECT_THAT(given.errors[1].message, HasSubstr("/opt/kata/planted belongs to user 64711"));
  EXPECT_EQ(status("opt/kata/planted").st_uid, kAgent);
}

TEST_F(AgentFoldersTest, AScanBesideTheStoreSaysThatItDidNotSeeAll) {
  make_deep("opt/kata/local");
  const auto given = test::must(give_to_group(host_, "opt/kata", group_, Giving::tree));
  ASSERT_EQ(given.errors.size(), 1U);
  EXPECT_EQ(given.errors[0].code, Errc::refused);
  EXPECT_THAT(given.errors[0].message, HasSubstr("the rest is not looked at"));
}

TEST_F(AgentFoldersTest, AFolderThatIsALinkIsRefused) {
  tree_.directory("data");
  const auto before = mode("data");
  tree_.link("opt", "data");
  const auto given = give_to_group(host_, "opt", group_, Giving::tree);
  ASSERT_FALSE(given.has_value());
  EXPECT_EQ(given.error().code, Errc::refused);
  EXPECT_THAT(given.error().message, HasSubstr("/opt is a symbolic link"));
  EXPECT_EQ(mode("data"), before);
}

TEST_F(AgentFoldersTest, ADeepTreeIsGivenAsFarAsTheBound) {
  const auto folder = make_deep("opt/kata/.ferry");
  const auto given = test::must(give_to_group(host_, "opt/kata", group_, Giving::tree));
  ASSERT_EQ(given.errors.size(), 1U);
  EXPECT_EQ(given.errors[0].code, Errc::refused);
  EXPECT_THAT(given.errors[0].message, HasSubstr("levels of folders"));
  EXPECT_EQ(mode("opt/kata/.ferry/d/d"), 02775U);
  EXPECT_NE(mode(folder), 02775U);
}

/// A tree with an entry that cannot be given, and one before and one behind it, in whatever order the file
/// system lists them.
class BadEntry : public AgentFoldersTest {
 protected:
  void SetUp() override {
    if (!is_root()) GTEST_SKIP() << "only root can be another user";
    for (const char* const name : {"a", "b", "c", "d", "e", "m", "n", "o", "z"}) {
      const std::string file = std::string("opt/kata/.ferry/artifact/") + name;
      tree_.file(file, "");
      others_.push_back(file);
    }
    tree_.file(kBad, "");
    change_mode(kBad, 0);
    for (const auto& entry : std::filesystem::recursive_directory_iterator(tree_.path() / "opt"))
      if (::chown(entry.path().c_str(), kAgent, kAgent) != 0) throw std::runtime_error("chown");
  }
  void others_are_given() const {
    for (const std::string& file : others_) EXPECT_EQ(mode(file) & 0060U, 0060U) << file;
  }
  AgentFolders folders(std::chrono::milliseconds poll_period) const {
    return {host_,
            {.group = kAgent, .lock = {}, .folders = {}, .trees = {"opt/kata"}, .poll_period = poll_period}};
  }

  static constexpr const char* kBad = "opt/kata/.ferry/artifact/k";
  std::vector<std::string> others_;
};

TEST_F(BadEntry, KeepsNoOtherOneFromBeingGiven) {
  const test::AsUser owner(kAgent);
  const auto given = test::must(give_to_group(host_, "opt/kata", kAgent, Giving::tree));
  ASSERT_EQ(given.errors.size(), 1U);
  EXPECT_THAT(given.errors[0].message, HasSubstr("give /opt/kata/.ferry/artifact/k to group 64711"));
  EXPECT_EQ(given.errors[0].code, std::errc::permission_denied);
  others_are_given();
  EXPECT_EQ(mode("opt/kata/.ferry"), 02775U);
}

TEST_F(BadEntry, IsSaidOnceAndGivenByALaterLook) {
  const test::LogOf log;
  const test::AsUser owner(kAgent);
  AgentFolders looks = folders(std::chrono::milliseconds(0));
  looks.give();
  looks.give();
  const std::string said = log.text();
  const auto first = said.find(kBad);
  ASSERT_NE(first, std::string::npos) << said;
  EXPECT_EQ(said.find(kBad, first + 1), std::string::npos) << said;
  change_mode(kBad, 0600);
  looks.give();
  EXPECT_EQ(mode(kBad), 0660U);
  tree_.file("opt/kata/.ferry/later", "");
  change_mode("opt/kata/.ferry/later", 0600);
  looks.give();
  EXPECT_EQ(mode("opt/kata/.ferry/later"), 0600U) << "a look without an error was the last one";
}

TEST_F(BadEntry, BringsNoScanWithEachRound) {
  const test::AsUser owner(kAgent);
  AgentFolders looks = folders(std::chrono::hours(1));
  looks.give();
  change_mode(kBad, 0600);
  looks.give();
  EXPECT_EQ(mode(kBad), 0600U);
}

TEST_F(AgentFoldersTest, TheOwnerInTheGroupNeedsNoCapability) {
  if (!is_root()) GTEST_SKIP() << "only root has supplementary groups and capabilities to choose";
  tree_.file("opt/kata/.ferry/blobs/part", "half");
  EXPECT_TRUE(test::holds_for_hostd_in_group(kAgent, [&] {
    const auto without = give_to_group(host_, "opt/kata", kAgent + 1, Giving::tree);
    const auto with = give_to_group(host_, "opt/kata", kAgent, Giving::tree);
    return without && without->errors.size() == 4 && with && with->changed == 4 && with->errors.empty();
  })) << "it is given to a group of hostd's, and to no other";
  EXPECT_EQ(mode("opt/kata/.ferry/blobs"), 02775U);
  EXPECT_EQ(mode("opt/kata/.ferry/blobs/part") & 0660U, 0660U);
}

TEST_F(AgentFoldersTest, WhoseFolderItIsNotSaysWhatToDo) {
  if (!is_root()) GTEST_SKIP() << "only root can be another user";
  tree_.directory(kFolder);
  const test::AsUser other(kAgent + 1);
  const auto given = give_to_group(host_, kFolder, kAgent, Giving::folder);
  ASSERT_FALSE(given.has_value());
  EXPECT_THAT(given.error().message, HasSubstr("give /var/lib/ferry to group 64711"));
  EXPECT_THAT(given.error().hint, HasSubstr("`chgrp 64711 /var/lib/ferry && chmod g+rwxs /var/lib/ferry`"));
}

TEST_F(AgentFoldersTest, AnAgentTakesTheFilesOfOneThatWasRootOver) {
  if (!is_root()) GTEST_SKIP() << "only root can be another user";
  tree_.file("var/lib/ferry/desired.json", "root's");
  tree_.file("var/lib/ferry/agent.lock", "");
  AgentFolders folders(host_,
                       {.group = kAgent, .lock = "var/lib/ferry/agent.lock", .folders = {}, .trees = {}});
  {
    const test::AsUser agent(kAgent);
    EXPECT_FALSE(InstanceLock::claim(host_, "var/lib/ferry/agent.lock").has_value());
    EXPECT_FALSE(host_.write_file("var/lib/ferry/desired.json", "the agent's").has_value());
  }
  folders.give();
  const test::AsUser agent(kAgent);
  EXPECT_TRUE(InstanceLock::claim(host_, "var/lib/ferry/agent.lock").has_value());
  EXPECT_TRUE(host_.write_file("var/lib/ferry/desired.json", "the agent's").has_value());
  EXPECT_EQ(host_.read_file("var/lib/ferry/desired.json").value(), "the agent's");
  EXPECT_TRUE(host_.remove_file("var/lib/ferry/desired.json").has_value());
}

TEST_F(AgentFoldersTest, AnotherNameOfAFileInThePlaceOfTheLockIsLeftAlone) {
  tree_.file("var/lib/ferry/kata/record.json", "a registry's credentials");
  change_mode("var/lib/ferry/kata/record.json", 0600);
  std::filesystem::create_hard_link(tree_.path() / "var/lib/ferry/kata/record.json",
                                    tree_.path() / "var/lib/ferry/agent.lock");
  AgentFolders folders(host_,
                       {.group = group_, .lock = "var/lib/ferry/agent.lock", .folders = {}, .trees = {}});
  folders.give();
  EXPECT_EQ(mode("var/lib/ferry/kata/record.json"), 0600U);
  tree_.remove("var/lib/ferry/agent.lock");
  tree_.link("var/lib/ferry/agent.lock", "kata/record.json");
  folders.give();
  EXPECT_EQ(mode("var/lib/ferry/kata/record.json"), 0600U);
}

TEST_F(AgentFoldersTest, ATreeIsLookedThroughOnceAndItsTopEachTime) {
  AgentFolders folders(host_, {.group = group_, .lock = {}, .folders = {"etc/nfd"}, .trees = {"opt/kata"}});
  tree_.file("opt/kata/.ferry/first", "");
  folders.give();
  EXPECT_EQ(mode("opt/kata/.ferry/first") & 0060U, 0060U);
  tree_.file("opt/kata/.ferry/second", "");
  change_mode("opt/kata/.ferry/second", 0600);
  std::filesystem::remove(tree_.path() / "etc/nfd");
  folders.give();
  EXPECT_EQ(mode("opt/kata/.ferry/second"), 0600U);
  EXPECT_EQ(mode("etc/nfd"), 02775U);
  std::filesystem::remove_all(tree_.path() / "opt/kata");
  folders.give();
  EXPECT_EQ(mode("opt/kata/.ferry"), 02775U) << "a folder that is made anew";
}

}  // namespace
}  // namespace ferry::host
