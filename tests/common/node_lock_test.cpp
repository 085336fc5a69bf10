// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <csignal>
#include <fcntl.h>
#include <optional>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include <gmock/gmock.h>

#include "hostfs/locks.h"
#include "tests/support/open_files.h"
#include "tests/support/scratch_directory.h"

namespace ferry {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

constexpr auto kLong = 30s;  // ends only a test that fails

class NodeLockTest : public testing::Test {
 protected:
  test::ScratchDirectory tree_;
  HostFs host_{tree_.path()};
};

TEST_F(NodeLockTest, RefusesASecondOneAndNamesTheFirst) {
  const auto held = NodeLock::take(host_, 0ms);
  ASSERT_TRUE(held);
  const auto second = NodeLock::take(host_, 30ms);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Errc::failed);
  EXPECT_THAT(second.error().message, HasSubstr("process " + std::to_string(::getpid())));
  EXPECT_FALSE(second.error().hint.empty());
}

TEST_F(NodeLockTest, IsTakenByAProcessThatWaitsOnceItIsFree) {
  std::optional<NodeLock> held = NodeLock::take(host_, 0ms).value();
  bool had = false;
  std::jthread waiting([&] { had = NodeLock::take(host_, kLong).has_value(); });
  held.reset();
  waiting.join();
  EXPECT_TRUE(had);
  EXPECT_TRUE(NodeLock::take(host_, 0ms)) << "the waiting one has let go too";
}

TEST_F(NodeLockTest, IsNotHadByAFileThatSomebodyHasRemoved) {
  const auto file = std::filesystem::canonical(tree_.path()) / "run/ferry/hostd/lock";
  std::optional<NodeLock> held = NodeLock::take(host_, 0ms).value();
  std::optional<Result<NodeLock>> had;
  std::jthread waiting([&] { had = NodeLock::take(host_, kLong); });
  ASSERT_TRUE(test::becomes_open(file, 2));
  std::filesystem::remove_all(file.parent_path());
  held.reset();
  waiting.join();
  ASSERT_TRUE(had && *had);
  EXPECT_FALSE(NodeLock::take(host_, 0ms)) << "two at a time";
}

TEST_F(NodeLockTest, IsFreeOnceItsProcessDiesHoweverItDies) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  const UniqueFd reader(ends[0]);
  UniqueFd writer(ends[1]);
  const pid_t child = ::fork();
  if (child == 0) {
    const auto held = NodeLock::take(host_, 0ms);
    const char answer = held ? 'y' : 'n';
    if (::write(writer.get(), &answer, 1) == 1) ::pause();
    ::_exit(1);
  }
  writer.reset();
  char answer = '?';
  ASSERT_EQ(::read(reader.get(), &answer, 1), 1);
  ASSERT_EQ(answer, 'y');

  const auto refused = NodeLock::take(host_, 0ms);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("process " + std::to_string(child)));

  ::kill(child, SIGKILL);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_TRUE(NodeLock::take(host_, 0ms));
}

TEST_F(NodeLockTest, SaysWhenItsPlaceCannotBeMade) {
  tree_.file("run", "");
  const auto lock = NodeLock::take(host_, 0ms);
  ASSERT_FALSE(lock);
  EXPECT_EQ(lock.error().code, std::errc::not_a_directory);
}

}  // namespace
}  // namespace ferry
