// SPDX-License-Identifier: Apache-2.0
#include <thread>

#include <gmock/gmock.h>

#include "hostfs/locks.h"
#include "tests/support/must.h"
#include "tests/support/scratch_directory.h"

namespace ferry {
namespace {

using namespace std::chrono_literals;
using test::must;

constexpr const char* kFile = "run/ferry/it.lock";

class InstanceLockQueueTest : public testing::Test {
 protected:
  /// Runs the loop until it has the lock; false: not in time.
  bool comes() {
    std::optional<InstanceLock> mine;
    const InstanceLockQueue queue(*loop_, host_, kFile, [&](InstanceLock only) {
      mine.emplace(std::move(only));
      loop_->finish();
    });
    loop_->at(EventLoop::Clock::now() + 20s, [this] { loop_->finish(); });
    loop_->run({});
    return mine && must(mine->is_at(host_, kFile)) && !InstanceLock::claim(host_, kFile);
  }

  test::ScratchDirectory tree_;
  HostFs host_{tree_.path()};
  std::unique_ptr<EventLoop> loop_ = must(EventLoop::create());
};

TEST_F(InstanceLockQueueTest, ComesAtOnceWhereNobodyIs) {
  EXPECT_TRUE(comes());
}

TEST_F(InstanceLockQueueTest, ComesWhenTheOtherEnds) {
  std::optional<InstanceLock> other = must(InstanceLock::claim(host_, kFile));
  loop_->at(EventLoop::Clock::now() + 20ms, [&] { other.reset(); });
  EXPECT_TRUE(comes());
}

TEST_F(InstanceLockQueueTest, ComesWhenTheFileIsAnotherByNow) {
  const auto other = must(InstanceLock::claim(host_, kFile));
  loop_->at(EventLoop::Clock::now() + 20ms, [this] { std::filesystem::remove_all(tree_.path() / "run"); });
  EXPECT_TRUE(comes());
  EXPECT_FALSE(must(other.is_at(host_, kFile)));
}

}  // namespace
}  // namespace ferry
