// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/classes/root_only.h"

#include <stdexcept>
#include <string>
#include <sys/stat.h>
#include <unistd.h>

#include <gmock/gmock.h>

#include "tests/support/scratch_directory.h"

namespace ferry::kata {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr const char* kFolder = "/opt/ferry/kata/local";
constexpr uid_t kAgent = 64'711;

/// A folder that others may write, and that has the sticky bit, with an administrator's artifact.
class RootOnly : public testing::Test {
 protected:
  RootOnly() {
    scratch_.file("opt/ferry/kata/local/configuration.toml", "a = 1\n");
    scratch_.file("opt/ferry/kata/local/share/kata-containers/vmlinuz", "x");
    for (const char* const folder : {"opt", "opt/ferry", "opt/ferry/kata/local", "opt/ferry/kata/local/share",
                                     "opt/ferry/kata/local/share/kata-containers"})
      change_mode(folder, 0755);
    for (const char* const file :
         {"opt/ferry/kata/local/configuration.toml", "opt/ferry/kata/local/share/kata-containers/vmlinuz"})
      change_mode(file, 0644);
    change_mode("opt/ferry/kata", 01777);
  }
  void change_mode(const std::string& relative, mode_t mode) const {
    if (::chmod((scratch_.path() / relative).c_str(), mode) != 0)
      throw std::runtime_error("chmod " + relative);
  }
  void give_to_agent(const std::string& relative) const {
    if (::lchown((scratch_.path() / relative).c_str(), kAgent, kAgent) != 0)
      throw std::runtime_error("chown " + relative);
  }
  Result<> check(const char* folder = kFolder) const { return check_root_only(host_, folder); }
  /// The refusal; no error: there is none.
  Error refusal(const char* folder = kFolder) const {
    const auto checked = check(folder);
    if (checked) return {};
    EXPECT_EQ(checked.error().code, Errc::refused) << checked.error().message;
    return checked.error();
  }

  test::ScratchDirectory scratch_;
  const HostFs host_{scratch_.path()};
};

TEST_F(RootOnly, AnAdministratorsFolderPasses) {
  scratch_.link("opt/ferry/kata/local/kernel", "share/kata-containers/vmlinuz");
  scratch_.link("opt/ferry/kata/local/again", ".");
  scratch_.link("opt/ferry/kata/local/later", "/opt/kata/later.img");
  for (const char* const folder : {kFolder, "/opt/ferry/kata/local/", "/opt/./ferry//kata/local"}) {
    const auto checked = check(folder);
    EXPECT_TRUE(checked) << folder << ": " << checked.error().message;
  }
}

TEST_F(RootOnly, AnEntryThatOthersWriteIsRefused) {
  for (const char* const entry :
       {"opt/ferry/kata/local/configuration.toml", "opt/ferry/kata/local/share/kata-containers/vmlinuz",
        "opt/ferry/kata/local/share", "opt/ferry/kata/local"}) {
    struct stat before {};
    ASSERT_EQ(::stat((scratch_.path() / entry).c_str(), &before), 0);
    for (const mode_t more : {mode_t{S_IWGRP}, mode_t{S_IWOTH}, mode_t{S_IWGRP | S_ISVTX}}) {
      change_mode(entry, (before.st_mode & 07777U) | more);
      const Error refused = refusal();
      EXPECT_THAT(refused.message, HasSubstr(std::string("/") + entry + " can be written by others")) << more;
      EXPECT_THAT(refused.hint, HasSubstr("`chown -hR root:root /opt/ferry/kata/local && chmod -R go-w "
                                          "/opt/ferry/kata/local`"));
    }
    change_mode(entry, before.st_mode & 07777U);
    EXPECT_TRUE(check()) << entry;
  }
}

TEST_F(RootOnly, AFolderOnTheWayMayBeWritableOnlyWithTheStickyBit) {
  change_mode("opt/ferry/kata", 02775);
  const Error refused = refusal();
  EXPECT_THAT(refused.message, HasSubstr("/opt/ferry/kata can be written by others (mode 2775)"));
  EXPECT_THAT(refused.hint, HasSubstr("`chown -h root:root /opt/ferry/kata && chmod go-w /opt/ferry/kata`"));
  EXPECT_THAT(refused.hint, HasSubstr("then check its content, or copy it anew"));
  change_mode("opt/ferry/kata", 03775);
  EXPECT_TRUE(check());
  EXPECT_THAT(refusal("/opt/ferry/kata").message, HasSubstr("/opt/ferry/kata can be written by others"))
      << "the sticky bit does not keep others from adding files";
}

TEST_F(RootOnly, AnotherUsersEntryIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can be another user";
  for (const char* const entry :
       {"opt/ferry/kata/local/configuration.toml", "opt/ferry/kata/local", "opt/ferry/kata", "opt"}) {
    give_to_agent(entry);
    EXPECT_THAT(refusal().message, HasSubstr(std::string("/") + entry + " belongs to user 64711"));
    ASSERT_EQ(::lchown((scratch_.path() / entry).c_str(), 0, 0), 0);
  }
  scratch_.link("opt/ferry/kata/local/kernel", "share/kata-containers/vmlinuz");
  give_to_agent("opt/ferry/kata/local/kernel");
  EXPECT_THAT(refusal().message, HasSubstr("/opt/ferry/kata/local/kernel belongs to user 64711"));
}

TEST_F(RootOnly, AnAgentsLinkOnTheWayIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can be another user";
  scratch_.link("opt/ferry/kata/a", "local");
  EXPECT_TRUE(check("/opt/ferry/kata/a")) << "root's link stays as it is";
  give_to_agent("opt/ferry/kata/a");
  EXPECT_THAT(refusal("/opt/ferry/kata/a").message, HasSubstr("/opt/ferry/kata/a belongs to user 64711"));
}

TEST_F(RootOnly, ALinkToWhatOthersWriteIsRefused) {
  scratch_.file("srv/shared/vmlinuz", "x");
  change_mode("srv/shared/vmlinuz", 0664);
  scratch_.link("opt/ferry/kata/local/kernel", "/srv/shared/vmlinuz");
  EXPECT_THAT(refusal().message, HasSubstr("/srv/shared/vmlinuz can be written by others"));
  scratch_.link("opt/ferry/kata/local/kernel", "../../../../srv/shared");
  EXPECT_THAT(refusal().message, HasSubstr("/srv/shared/vmlinuz can be written by others"))
      << "in the folder that the link leads to";
  scratch_.link("opt/ferry/kata/local/kernel", "..");
  EXPECT_THAT(refusal().message, HasSubstr("/opt/ferry/kata can be written by others"));
  scratch_.link("opt/ferry/kata/local/kernel", "../vmlinuz");
  EXPECT_THAT(refusal().message,
              AllOf(HasSubstr("/opt/ferry/kata/vmlinuz is missing"), HasSubstr("others can make it")));
}

TEST_F(RootOnly, LinksInACircleAndDeepTreesAreRefused) {
  scratch_.link("opt/ferry/kata/local/a", "b");
  scratch_.link("opt/ferry/kata/local/b", "a");
  EXPECT_THAT(refusal().message, HasSubstr("is a link that leads in a circle"));
  scratch_.remove("opt/ferry/kata/local/a");
  scratch_.remove("opt/ferry/kata/local/b");
  std::string deep = "opt/ferry/kata/local";
  for (int i = 0; i < 50; ++i) {
    deep += "/d";
    scratch_.directory(deep);
    change_mode(deep, 0755);
  }
  EXPECT_THAT(refusal().message, HasSubstr("is more than 40 levels deep"));
}

TEST_F(RootOnly, AMissingFolderIsNotThere) {
  const auto checked = check("/opt/kata-vgpu");
  ASSERT_FALSE(checked.has_value());
  EXPECT_TRUE(is_gone(checked.error())) << checked.error().message;
}

}  // namespace
}  // namespace ferry::kata
