// SPDX-License-Identifier: Apache-2.0
#include "cli/output/wait_note.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstddef>
#include <fcntl.h>
#include <filesystem>
#include <mutex>
#include <pty.h>
#include <stdexcept>
#include <string>
#include <termios.h>
#include <unistd.h>
#include <vector>

#include <gmock/gmock.h>

#include "common/unique_fd.h"
#include "tests/support/scratch_directory.h"

namespace ferry::cli {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;
using testing::StartsWith;

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
  std::vector<std::string> all() {
    const std::lock_guard guard(mutex_);
    return lines_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> lines_;
};

/// Standard error is another file as long as this object lives.
class OtherStandardError {
 public:
  explicit OtherStandardError(int file) : before_(::dup(STDERR_FILENO)) { ::dup2(file, STDERR_FILENO); }
  OtherStandardError(const OtherStandardError&) = delete;
  OtherStandardError& operator=(const OtherStandardError&) = delete;
  OtherStandardError(OtherStandardError&&) = delete;
  OtherStandardError& operator=(OtherStandardError&&) = delete;
  ~OtherStandardError() { ::dup2(before_.get(), STDERR_FILENO); }

 private:
  const UniqueFd before_;
};

struct Terminal {
  Terminal() {
    int master = -1;
    int slave = -1;
    if (::openpty(&master, &slave, nullptr, nullptr, nullptr) != 0) throw std::runtime_error("no terminal");
    screen = UniqueFd(master);
    program = UniqueFd(slave);
  }
  UniqueFd screen;
  UniqueFd program;
};

/// Returns once a note of this unit has been due three times.
void wait_for_three_notes(std::chrono::milliseconds unit) {
  Said said;
  const WaitNote waits(
      "another", [&](const std::string& line) { said.add(line); }, unit);
  EXPECT_THAT(said.first(3), SizeIs(3));
}

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
    wait_for_three_notes(1ms);
  }
  EXPECT_THAT(said.all(), IsEmpty());
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

TEST(WaitNote, IsForTerminals) {
  const Terminal terminal;
  std::string shown;
  {
    const OtherStandardError other(terminal.program.get());
    const WaitNote waits("reading the cluster", 1ms);
    std::array<char, 256> some{};
    while (shown.find('\n') == std::string::npos) {
      const ssize_t count = ::read(terminal.screen.get(), some.data(), some.size());
      if (count <= 0) break;
      shown.append(some.data(), static_cast<std::size_t>(count));
    }
  }
  EXPECT_THAT(shown, StartsWith("reading the cluster: 2 s so far\r\n"));

  // A wait of a program whose messages go to a file is no matter for a person.
  const test::ScratchDirectory scratch;
  scratch.file("messages", "");
  const UniqueFd messages(::open((scratch.path() / "messages").c_str(), O_WRONLY | O_CLOEXEC));
  ASSERT_TRUE(messages.valid());
  {
    const OtherStandardError other(messages.get());
    const WaitNote waits("reading the cluster", 1ms);
    wait_for_three_notes(1ms);
  }
  EXPECT_EQ(std::filesystem::file_size(scratch.path() / "messages"), 0U);
}

// A note that blocked would keep the node's lock until a person pressed Ctrl-Q.
TEST(WaitNote, EndsOnAStoppedTerminal) {
  const Terminal terminal;
  ASSERT_EQ(::tcflow(terminal.program.get(), TCOOFF), 0);
  const OtherStandardError other(terminal.program.get());
  const WaitNote waits("reading the cluster", 1ms);
  wait_for_three_notes(1ms);
}

}  // namespace
}  // namespace ferry::cli
