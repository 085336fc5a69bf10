// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <fcntl.h>
#include <filesystem>
#include <random>
#include <string>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include <gmock/gmock.h>

#include "hostfs/host_fs.h"
#include "tests/support/as_user.h"
#include "tests/support/scratch_directory.h"

namespace {

struct Syncs {
  std::vector<std::string> paths = {};
  int error = 0;  ///< of the first one
};
Syncs* syncs = nullptr;  // nullptr: they are not followed

}  // namespace

extern "C" int fsync(int fd) {
  if (syncs != nullptr) {
    syncs->paths.push_back(std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(fd)).string());
    errno = syncs->error;
    if (errno != 0 && syncs->paths.size() == 1) return -1;
  }
  return static_cast<int>(::syscall(SYS_fsync, fd));
}

namespace ferry {
namespace {

using testing::ElementsAre;
using testing::StartsWith;

class AtomicFileTest : public testing::Test {
 protected:
  std::filesystem::path path(const char* name) const { return tree_.path() / name; }
  struct stat status(const char* name) const {
    struct stat out {};
    EXPECT_EQ(::stat(path(name).c_str(), &out), 0);
    return out;
  }

  test::ScratchDirectory tree_;
  HostFs host_{tree_.path()};
};

TEST_F(AtomicFileTest, MakesTheFileAndItsDirectories) {
  ASSERT_TRUE(host_.write_file("run/ferry/hostd/moves/17.json", "{}\n", 0640));
  EXPECT_EQ(host_.read_file("run/ferry/hostd/moves/17.json").value(), "{}\n");
  EXPECT_EQ(status("run/ferry/hostd/moves/17.json").st_mode & 07777U, 0640U);
  EXPECT_EQ(status("run/ferry/hostd/moves").st_mode & 0700U, 0700U);
}

// A file does not outlive a power loss whose directory has no name on the disk.
TEST_F(AtomicFileTest, SyncsEachDirectoryWithANewOne) {
  const auto root = std::filesystem::canonical(tree_.path());
  const auto write = [&](const char* file, int error) {
    Syncs now{.error = error};
    syncs = &now;
    const auto written = host_.write_file(file, "{}\n");
    syncs = nullptr;
    EXPECT_EQ(written.has_value(), error != EIO);
    if (!written) {
      EXPECT_THAT(written.error().message, StartsWith("sync the parent of directory /etc: ")) << error;
    }
    return now.paths;
  };
  EXPECT_THAT(write("var/lib/gpus/one.json", 0),
              ElementsAre(root.string(), (root / "var").string(), (root / "var/lib").string(),
                          StartsWith((root / "var/lib/gpus/").string()), (root / "var/lib/gpus").string()));
  EXPECT_THAT(write("var/lib/gpus/one.json", 0),
              ElementsAre(StartsWith((root / "var/lib/gpus/").string()), (root / "var/lib/gpus").string()));
  write("run/one.json", EINVAL);
  write("etc/one.json", EIO);
}

TEST_F(AtomicFileTest, LeavesAReaderOfTheOldFileItsContent) {
  tree_.file("status.json", "old and longer");
  const UniqueFd reader = host_.open("status.json", O_RDONLY).value();
  ASSERT_TRUE(host_.write_file("status.json", "new"));
  std::string seen(64, '\0');
  seen.resize(static_cast<std::size_t>(::read(reader.get(), seen.data(), seen.size())));
  EXPECT_EQ(seen, "old and longer");
  EXPECT_EQ(host_.read_file("status.json").value(), "new");
}

TEST_F(AtomicFileTest, AFileOfAnotherUserBecomesTheWritersThatIsNotRoot) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can be another user";
  constexpr uid_t kUser = 64'711;
  tree_.file("desired.json", "root's");
  ASSERT_EQ(::chmod(tree_.path().c_str(), 0777), 0);
  {
    const test::AsUser user(kUser);
    ASSERT_TRUE(host_.write_file("desired.json", "the user's"));
  }
  EXPECT_EQ(host_.read_file("desired.json").value(), "the user's");
  EXPECT_EQ(status("desired.json").st_uid, kUser);
}

TEST_F(AtomicFileTest, KeepsModeAndOwnerOfAnExistingFile) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  constexpr uid_t kUser = 12;
  constexpr gid_t kGroup = 34;
  tree_.file("config.toml", "old");
  ASSERT_EQ(::chown(path("config.toml").c_str(), kUser, kGroup), 0);
  ASSERT_EQ(::chmod(path("config.toml").c_str(), 0604), 0);
  ASSERT_TRUE(host_.write_file("config.toml", "new", 0644));
  EXPECT_EQ(status("config.toml").st_uid, kUser);
  EXPECT_EQ(status("config.toml").st_gid, kGroup);
  EXPECT_EQ(status("config.toml").st_mode & 07777U, 0604U);
}

TEST_F(AtomicFileTest, LeavesTheOldFileWholeWhenTheNewOneDoesNotFit) {
  tree_.file("status.json", "old");
  // A limit on the size of files stands in for a full disk: the first page is written, the second is not.
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit small = before;
  small.rlim_cur = 4096;
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto written = host_.write_file("status.json", std::string(10'000, 'x'));
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  static_cast<void>(std::signal(SIGXFSZ, handler));

  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().code, std::errc::file_too_large);
  EXPECT_EQ(host_.read_file("status.json").value(), "old");
  EXPECT_THAT(host_.list(".").value(), ElementsAre("status.json")) << "no half file is left beside it";
}

// Killed wherever it happens to be, hundreds of times, and read meanwhile: the one content or the other.
TEST_F(AtomicFileTest, IsWholeWhereverItsWriterIsKilled) {
  constexpr int kWriters = 300;
  constexpr int kLeastWriters = 30;           // a sanitizer makes fork() a hundred times as slow
  constexpr std::chrono::seconds kEnough{2};  // for those
  constexpr int kMostMicroseconds = 1500;     // which some writes take
  // Many pages, since a write is cut off between two of them.
  const std::array contents = {std::string(64UL << 10, 'a'), std::string(96UL << 10, 'b')};
  tree_.file("status.json", contents.front());
  const auto is_whole = [&] {
    return std::ranges::count(contents, host_.read_file("status.json").value()) == 1;
  };
  std::random_device random;
  std::uniform_int_distribution<int> moments(0, kMostMicroseconds);
  const auto begin = std::chrono::steady_clock::now();
  for (int writer = 0; writer < kWriters; ++writer) {
    if (writer >= kLeastWriters && std::chrono::steady_clock::now() - begin > kEnough) break;
    const pid_t pid = ::fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) {
      for (std::size_t turn = 0; host_.write_file("status.json", contents.at(turn % contents.size()));
           ++turn) {
      }
      ::_exit(1);
    }
    const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(moments(random));
    while (std::chrono::steady_clock::now() < end) EXPECT_TRUE(is_whole()) << "it is being written";
    ::kill(pid, SIGKILL);
    int status = 0;
    ASSERT_EQ(::waitpid(pid, &status, 0), pid);
    EXPECT_TRUE(WIFSIGNALED(status)) << "it could not write";
    ASSERT_TRUE(is_whole()) << writer;
  }
  EXPECT_GT(host_.list(".").value().size(), 5U) << "so few were killed in the middle of a write?";
}

TEST_F(AtomicFileTest, SaysWhichDirectoryCannotBeMade) {
  tree_.file("run", "a file where a directory must be");
  const auto written = host_.write_file("run/ferry/status.json", "{}");
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().code, std::errc::not_a_directory);
  EXPECT_THAT(written.error().message, testing::HasSubstr("/run/ferry"));
}

}  // namespace
}  // namespace ferry
