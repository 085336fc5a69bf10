// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cerrno>
#include <filesystem>
#include <iterator>
#include <poll.h>
#include <string>
#include <sys/types.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "common/process/signals.h"

namespace ferry {
namespace {

using testing::ExitedWithCode;
using testing::KilledBySignal;

// What a test has a process of its own do; gtest starts one anew, so that no other thread is there to take a
// signal.
class FinishOnSignalDeathTest : public testing::Test {
 protected:
  FinishOnSignalDeathTest() {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    // A shell has what it runs in the background ignore SIGINT, and nohup SIGHUP.
    for (std::size_t i = 0; i < kSignals.size(); ++i) before_.at(i) = std::signal(kSignals.at(i), SIG_DFL);
  }
  ~FinishOnSignalDeathTest() override {
    for (std::size_t i = 0; i < kSignals.size(); ++i) (void)std::signal(kSignals.at(i), before_.at(i));
  }

 private:
  static constexpr std::array kSignals = {SIGINT, SIGTERM, SIGHUP};
  std::array<void (*)(int), kSignals.size()> before_{};
};

/// From here on what is said on stderr can be read.
class Said {
 public:
  Said() {
    if (::pipe(ends_.data()) != 0 || ::dup2(ends_[1], STDERR_FILENO) < 0) ::_exit(120);
  }
  /// Waits for some.
  std::string next(int milliseconds_at_most = 30'000) const {
    pollfd there{.fd = ends_[0], .events = POLLIN, .revents = 0};
    if (::poll(&there, 1, milliseconds_at_most) != 1) return {};
    std::array<char, 256> text{};
    const ssize_t got = ::read(ends_[0], text.data(), text.size());
    return {text.data(), got > 0 ? static_cast<std::size_t>(got) : 0};
  }

 private:
  std::array<int, 2> ends_{};
};

bool is_answer(const std::string& text) {
  return text.find("finishing what has begun") != std::string::npos;
}

void send(int signal) {
  ::kill(::getpid(), signal);
}

[[noreturn]] void signalled_once(int signal) {
  const Said said;
  bool answered = false;
  {
    const FinishOnSignal finish;
    send(signal);
    answered = is_answer(said.next());
  }
  ::_exit(answered ? 7 : 121);
}

TEST_F(FinishOnSignalDeathTest, AnswersTheFirstOne) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP})
    EXPECT_EXIT(signalled_once(signal), ExitedWithCode(7), "");
}

[[noreturn]] void signalled_twice(int first, int second) {
  const Said said;
  const FinishOnSignal finish;
  send(first);
  if (!is_answer(said.next())) ::_exit(121);
  send(second);
  (void)said.next();  // there is nothing more
  ::_exit(122);
}

TEST_F(FinishOnSignalDeathTest, EndsByTheSecond) {
  EXPECT_EXIT(signalled_twice(SIGINT, SIGINT), KilledBySignal(SIGINT), "");
  EXPECT_EXIT(signalled_twice(SIGINT, SIGTERM), KilledBySignal(SIGTERM), "");
  EXPECT_EXIT(signalled_twice(SIGTERM, SIGHUP), KilledBySignal(SIGHUP), "");
}

[[noreturn]] void signalled_afterwards(int signal) {
  { const FinishOnSignal finish; }
  send(signal);
  ::pause();
  ::_exit(121);
}

TEST_F(FinishOnSignalDeathTest, IsOverWithTheChange) {
  EXPECT_EXIT(signalled_afterwards(SIGINT), KilledBySignal(SIGINT), "");
}

[[noreturn]] void reader_gone() {
  std::array<int, 2> ends{};
  if (::pipe(ends.data()) != 0) ::_exit(120);
  ::close(ends[0]);
  bool fails = false;
  {
    const FinishOnSignal finish;
    fails = ::write(ends[1], "x", 1) < 0 && errno == EPIPE;
  }
  ::_exit(fails ? 7 : 121);  // neither meanwhile nor afterwards has it ended us
}

TEST_F(FinishOnSignalDeathTest, OutlivesWhoReadsUs) {
  EXPECT_EXIT(reader_gone(), ExitedWithCode(7), "");
}

[[noreturn]] void hung_up_under_nohup() {
  (void)std::signal(SIGHUP, SIG_IGN);
  const Said said;
  const FinishOnSignal finish;
  send(SIGHUP);
  if (!said.next(500).empty()) ::_exit(121);
  send(SIGTERM);  // the first that counts
  ::_exit(is_answer(said.next()) ? 7 : 122);
}

TEST_F(FinishOnSignalDeathTest, LeavesIgnoredWhatOurParentIgnores) {
  EXPECT_EXIT(hung_up_under_nohup(), ExitedWithCode(7), "");
}

[[noreturn]] void somebody_waits() {
  sigset_t own;
  sigemptyset(&own);
  sigaddset(&own, SIGTERM);
  ::pthread_sigmask(SIG_BLOCK, &own, nullptr);
  const FinishOnSignal finish;
  const auto threads = std::distance(std::filesystem::directory_iterator("/proc/self/task"), {});
  ::_exit(threads == 1 ? 7 : 121);
}

TEST_F(FinishOnSignalDeathTest, LeavesThemToAProgramThatWaitsForThem) {
  EXPECT_EXIT(somebody_waits(), ExitedWithCode(7), "");
}

}  // namespace
}  // namespace ferry
