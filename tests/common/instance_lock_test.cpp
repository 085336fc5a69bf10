// SPDX-License-Identifier: Apache-2.0
#include <csignal>
#include <fcntl.h>
#include <optional>
#include <sys/file.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include <gmock/gmock.h>

#include "common/unique_fd.h"
#include "hostfs/locks.h"
#include "tests/support/few_descriptors.h"
#include "tests/support/must.h"
#include "tests/support/scratch_directory.h"

namespace ferry {
namespace {

using namespace std::chrono_literals;
using test::must;

class InstanceLockTest : public testing::Test {
 protected:
  static constexpr const char* kFile = "run/ferry/some.lock";
  bool present() const { return must(is_present(host_, kFile)); }
  test::ScratchDirectory tree_;
  HostFs host_{tree_.path()};
};

TEST_F(InstanceLockTest, LastsAsLongAsAnyOfTheKind) {
  EXPECT_FALSE(present()) << "there is no file";
  std::optional<LivenessLock> first = must(LivenessLock::announce(host_, kFile));
  EXPECT_TRUE(present());
  std::optional<LivenessLock> second = must(LivenessLock::announce(host_, kFile));
  first.reset();
  EXPECT_TRUE(present());
  second.reset();
  EXPECT_FALSE(present()) << "the file stays, and says nothing";
}

TEST_F(InstanceLockTest, IsNoLinkToAnotherFile) {
  tree_.file("dev/watchdog", "");
  tree_.link(kFile, "../../dev/watchdog");
  EXPECT_EQ(is_present(host_, kFile).error().code, std::errc::too_many_symbolic_link_levels);
}

TEST_F(InstanceLockTest, EndsWithAProcessThatIsKilled) {
  int ready[2] = {};
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const auto held = LivenessLock::announce(host_, kFile);
    const char done = held ? '1' : '0';
    if (::write(ready[1], &done, 1) == 1) ::pause();
    ::_exit(EXIT_FAILURE);
  }
  char done = 0;
  ASSERT_EQ(::read(ready[0], &done, 1), 1);
  EXPECT_EQ(done, '1');
  EXPECT_TRUE(present());
  ASSERT_EQ(::kill(child, SIGKILL), 0);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_FALSE(present());
  ::close(ready[0]);
  ::close(ready[1]);
}

// A process that may read the file can lock it, is_present() for a moment and a stranger for ever.
TEST_F(InstanceLockTest, IsNotKeptWaitingForEver) {
  tree_.file(kFile, "");
  const UniqueFd stranger = must(host_.open(kFile, O_RDONLY));
  ASSERT_EQ(::flock(stranger.get(), LOCK_EX | LOCK_NB), 0);
  const auto refused = LivenessLock::announce(host_, kFile, 10ms);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message, "/run/ferry/some.lock: another process keeps it locked");
  const std::jthread lets_go([&] {
    std::this_thread::sleep_for(20ms);
    ::flock(stranger.get(), LOCK_UN);
  });
  EXPECT_TRUE(LivenessLock::announce(host_, kFile, 20s));
}

TEST_F(InstanceLockTest, LetsOneAlone) {
  std::optional<InstanceLock> first = must(InstanceLock::claim(host_, kFile));
  const auto second = InstanceLock::claim(host_, kFile);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Errc::refused);
  first.reset();
  EXPECT_TRUE(InstanceLock::claim(host_, kFile));
}

TEST_F(InstanceLockTest, DistinguishesThatItsNameIsGoneFromThatItCannotBeAsked) {
  const auto only = must(InstanceLock::claim(host_, kFile));
  EXPECT_TRUE(must(only.is_at(host_, kFile)));
  // A sanitizer's first look at the type of an error takes a pipe, which is not to be had below.
  EXPECT_FALSE(host_.open("none", O_RDONLY));
  const auto unknown = [&] {
    const test::FewDescriptors none(0);
    return only.is_at(host_, kFile);
  }();
  EXPECT_FALSE(unknown);
  std::filesystem::remove(tree_.path() / kFile);
  EXPECT_FALSE(must(only.is_at(host_, kFile)));
}

}  // namespace
}  // namespace ferry
