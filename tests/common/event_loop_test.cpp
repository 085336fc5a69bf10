// SPDX-License-Identifier: Apache-2.0
#include "common/event_loop.h"

#include <array>
#include <fcntl.h>
#include <string>
#include <sys/socket.h>
#include <unistd.h>

#include <gmock/gmock.h>

#include "common/owned_timer.h"
#include "tests/support/must.h"

namespace ferry {
namespace {

using test::must;
using testing::ElementsAre;
using Readiness = EventLoop::Readiness;
using std::chrono::milliseconds;

constexpr Readiness kRead{.read = true, .write = false};
constexpr Readiness kWrite{.read = false, .write = true};

/// Two ends of one line.
struct Line {
  UniqueFd here;
  UniqueFd there;
  Line() {
    std::array<int, 2> fds{};
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds.data()) != 0)
      throw std::runtime_error("no pair of sockets");
    here = UniqueFd(fds[0]);
    there = UniqueFd(fds[1]);
  }
};

void say(const UniqueFd& fd, std::string_view text) {
  if (::send(fd.get(), text.data(), text.size(), MSG_NOSIGNAL) < 0) throw std::runtime_error("cannot send");
}

/// Until the other end has to be read before more goes in.
void fill(const UniqueFd& fd) {
  const std::string much(1U << 16U, 'x');
  while (::send(fd.get(), much.data(), much.size(), MSG_NOSIGNAL) > 0) {
  }
}

void drain(const UniqueFd& fd) {
  std::array<char, 1U << 16U> bytes{};
  while (::recv(fd.get(), bytes.data(), bytes.size(), 0) > 0) {
  }
}

std::string said(Readiness ready) {
  return std::string(ready.read ? "r" : "") + (ready.write ? "w" : "");
}

class EventLoopTest : public testing::Test {
 protected:
  /// Ends a run that nothing else would: then the test fails by what it has seen.
  void run() {
    const auto end =
        loop_->at(EventLoop::Clock::now() + std::chrono::seconds(20), [this] { finish("late"); });
    loop_->run(stop_.get_token());
    loop_->cancel(end);
  }
  void finish(const std::string& what) {
    seen_.push_back(what);
    loop_->finish();
  }

  std::unique_ptr<EventLoop> loop_ = must(EventLoop::create());
  std::stop_source stop_;
  std::vector<std::string> seen_;
};

TEST_F(EventLoopTest, SaysWhatADescriptorCanDoOfWhatIsAwaited) {
  const Line line;
  say(line.there, "text");
  loop_->watch(line.here.get(), kWrite, [&](Readiness ready) {
    seen_.push_back(said(ready));
    loop_->watch(line.here.get(), kRead, [&](Readiness then) {
      seen_.push_back(said(then));
      loop_->watch(line.here.get(), {.read = true, .write = true},
                   [&](Readiness both) { finish(said(both)); });
    });
  });
  run();
  EXPECT_THAT(seen_, ElementsAre("w", "r", "rw"));
}

TEST_F(EventLoopTest, WaitsUntilADescriptorCanBeWritten) {
  const Line line;
  fill(line.here);
  loop_->watch(line.here.get(), kWrite, [&](Readiness ready) { finish(said(ready)); });
  loop_->at(EventLoop::Clock::now() + milliseconds(1), [&] {
    seen_.emplace_back("full");
    drain(line.there);
  });
  run();
  EXPECT_THAT(seen_, ElementsAre("full", "w"));
}

TEST_F(EventLoopTest, ReportsAHangUpWhoeverAwaitsIt) {
  Line line;
  loop_->watch(line.here.get(), Readiness{}, [&](Readiness ready) { finish(said(ready)); });
  line.there = UniqueFd();
  run();
  EXPECT_THAT(seen_, ElementsAre("rw"));
}

TEST_F(EventLoopTest, DoesNotTakeAnOldDescriptorsEventsForANewOnes) {
  // Two are ready in the same round. The job of the first closes the second, and another line gets its
  // number.
  const Line first;
  Line second;
  Line third;
  if (first.here.get() > second.here.get()) FAIL() << "the loop goes by number";
  say(first.there, "x");
  say(second.there, "x");
  const int number = second.here.get();
  loop_->watch(number, [&] { seen_.emplace_back("second"); });
  loop_->watch(first.here.get(), [&] {
    loop_->forget(first.here.get());
    loop_->forget(number);
    second.here = UniqueFd();
    ASSERT_EQ(::dup3(third.here.get(), number, O_CLOEXEC), number);
    second.here = UniqueFd(number);
    loop_->watch(number, [&] { finish("third"); });
    seen_.emplace_back("first");
    loop_->post([&] {
      seen_.emplace_back("next round");
      say(third.there, "x");
    });
  });
  run();
  EXPECT_THAT(seen_, ElementsAre("first", "next round", "third"));
}

TEST_F(EventLoopTest, RunsWhatIsDueInItsOrderAndNothingThatWasCancelled) {
  const auto now = EventLoop::Clock::now();
  loop_->at(now + milliseconds(3), [&] { finish("third"); });
  const auto cancelled = loop_->at(now + milliseconds(2), [&] { seen_.emplace_back("cancelled"); });
  loop_->at(now + milliseconds(1), [&] {
    seen_.emplace_back("first");
    loop_->cancel(cancelled);
    loop_->cancel(cancelled);
  });
  run();
  EXPECT_THAT(seen_, ElementsAre("first", "third"));
}

TEST_F(EventLoopTest, HasTimersThatEndWithTheirOwner) {
  const auto now = EventLoop::Clock::now();
  OwnedTimer timer(*loop_);
  timer.set(now, [&] { seen_.emplace_back("replaced"); });
  timer.set(now, [&] {
    seen_.emplace_back(timer.is_set() ? "set" : "runs");
    timer.set(now, [&] { finish("again"); });
    EXPECT_TRUE(timer.is_set());
  });
  {
    OwnedTimer ended(*loop_);
    ended.set(now, [&] { seen_.emplace_back("ended"); });
  }
  run();
  EXPECT_THAT(seen_, ElementsAre("runs", "again"));
  EXPECT_FALSE(timer.is_set());
  timer.set(now, [] {});
  timer.cancel();
  EXPECT_FALSE(timer.is_set());
}

TEST_F(EventLoopTest, EndsWhenAnyThreadAsksForIt) {
  loop_->post([&] {
    seen_.emplace_back("posted");
    stop_.request_stop();
  });
  run();
  EXPECT_THAT(seen_, ElementsAre("posted"));
}

}  // namespace
}  // namespace ferry
