// SPDX-License-Identifier: Apache-2.0
#include "cli/output/wait_note.h"

#include <algorithm>
#include <condition_variable>
#include <csignal>
#include <cstddef>
#include <mutex>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "tests/cli/run_program.h"
#include "tests/support/scratch_directory.h"

namespace ferry::cli {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::IsEmpty;

/// All that is said, by another thread.
class Said {
 public:
  void add(const std::string& line) {
    const std::lock_guard guard(mutex_);
    lines_.push_back(line);
    changed_.notify_all();
  }
  std::vector<std::string> first(std::size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, 30s, [&] { return lines_.size() >= count; });
    return {lines_.begin(), lines_.begin() + static_cast<std::ptrdiff_t>(std::min(count, lines_.size()))};
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> lines_;
};

TEST(WaitNote, SaysSoonAndThenSeldom) {
  Said said;
  const WaitNote waits(
      "reading the cluster", [&](const std::string& line) { said.add(line); }, 1ms);
  EXPECT_THAT(said.first(3),
              ElementsAre("reading the cluster: 2 s so far\n", "reading the cluster: 10 s so far\n",
                          "reading the cluster: 20 s so far\n"));
}

TEST(WaitNote, SaysNothingOfAShortWait) {
  Said said;
  {
    const WaitNote waits(
        "a", [&](const std::string& line) { said.add(line); }, 1h);
  }
  EXPECT_THAT(said.first(0), IsEmpty());
}

TEST(WaitNote, LeavesSignalsAndTheirMaskAlone) {
  sigset_t before{};
  sigset_t after{};
  ASSERT_EQ(::pthread_sigmask(SIG_SETMASK, nullptr, &before), 0);
  const WaitNote waits(
      "a", [](const std::string&) {}, 1h);
  ASSERT_EQ(::pthread_sigmask(SIG_SETMASK, nullptr, &after), 0);
  EXPECT_EQ(::sigismember(&after, SIGTERM), ::sigismember(&before, SIGTERM));
}

// A wait of a program whose messages go to a file is no matter for a person.
TEST(WaitNote, IsForTerminals) {
  const test::ScratchDirectory root;
  EXPECT_THAT(test::run_ferry({"--host-root", root.path().string(), "doctor"}).err,
              testing::Not(testing::HasSubstr("so far")));
}

}  // namespace
}  // namespace ferry::cli
