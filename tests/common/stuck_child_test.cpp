// SPDX-License-Identifier: Apache-2.0
// The host writer's child when a write hangs, and when the run that started it was killed.
#include <array>
#include <chrono>
#include <csignal>
#include <fcntl.h>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "common/process/spawn.h"
#include "hostfs/in_flight_writes.h"
#include "hostfs/locks.h"
#include "hostfs/stuck_writes.h"
#include "tests/common/written_tree.h"
#include "tests/support/must.h"

namespace ferry {
namespace {

using namespace std::chrono_literals;
using test::HostWriterTest;
using test::must;
using testing::HasSubstr;

/// A write that hangs: nobody reads the FIFO, so opening it for writing does not return.
class StuckChildTest : public HostWriterTest {
 protected:
  void SetUp() override {
    tree_.directory("sys");
    if (::mkfifo((tree_.path() / "sys/unbind").c_str(), 0600) != 0) throw std::runtime_error("mkfifo");
  }
  void TearDown() override {
    if (pid_ > 0 && !returned_) read_what_it_writes();
  }

  Result<> hang() {
    auto written = writer_.write("sys/unbind", "0000:65:00.0", 200ms);
    for (const std::string& name : records()) {
      record_ = nlohmann::json::parse(must(host_.read_file("run/ferry/stuck-writes/" + name)));
      pid_ = record_.at("pid").get<int>();
    }
    return written;
  }

  /// Their names; of none that is still being written.
  std::vector<std::string> records() const {
    auto names = host_.list("run/ferry/stuck-writes").value_or(std::vector<std::string>{});
    std::erase_if(names, [](const std::string& name) { return name.starts_with('.'); });
    return names;
  }
  void wait_for_a_record() const {
    const auto end = std::chrono::steady_clock::now() + 20s;
    while (records().empty() && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  }

  // Lets the write return at last, and the child end.
  std::string read_what_it_writes() {
    returned_ = true;
    const UniqueFd reader = must(host_.open("sys/unbind", O_RDONLY));
    std::string value(64, '\0');
    const ssize_t n = ::read(reader.get(), value.data(), value.size());
    value.resize(static_cast<std::size_t>(n < 0 ? 0 : n));
    ::waitpid(pid_, nullptr, 0);
    return value;
  }

  std::string proc(const char* file) const { return "proc/" + std::to_string(pid_) + "/" + file; }

  /// The record of an act under way; "": there is none.
  std::string act() const {
    for (const std::string& name : acts()) {
      const std::string text = host_.read_file("run/ferry/hostd/acts/" + name).value_or("");
      std::string recorded = text.substr(0, text.find('\0'));
      if (!recorded.empty() && recorded.find('\n') != recorded.size() - 1) return recorded;
    }
    return {};
  }
  std::vector<std::string> acts() const {
    return host_.list("run/ferry/hostd/acts").value_or(std::vector<std::string>{});
  }

  nlohmann::json record_;
  int pid_ = 0;
  bool returned_ = false;
};

TEST_F(StuckChildTest, IsReportedAndRecordedAfterTheDeadline) {
  const auto written = hang();
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().code, Errc::stuck);
  EXPECT_THAT(written.error().message, HasSubstr("write /sys/unbind: still in the kernel after 200 ms"));
  EXPECT_EQ(record_.at("act"), "write /sys/unbind");
  EXPECT_EQ(record_.at("value"), "0000:65:00.0");
}

// Whoever waits may be killed long before the deadline: by then the record must be there.
TEST_F(StuckChildTest, IsRecordedLongBeforeTheDeadlineAndForgottenWhenItReturns) {
  SpawningWriter writer(host_, "/proc/self/exe", 1ms);
  Result<> written = fail(Errc::failed, "not yet");
  std::jthread waiting([&] { written = writer.write("sys/unbind", "0000:65:00.0", kWriteDeadline); });
  wait_for_a_record();
  ASSERT_THAT(records(), testing::SizeIs(1));
  const auto record = nlohmann::json::parse(must(host_.read_file("run/ferry/stuck-writes/" + records()[0])));
  timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  EXPECT_GT(record.at("late_at_ms").get<std::int64_t>(), std::int64_t{now.tv_sec} * 1000 + 30'000)
      << "so far it is slow, and not late";
  const UniqueFd reader = must(host_.open("sys/unbind", O_RDONLY));
  waiting.join();
  EXPECT_TRUE(written);
  EXPECT_THAT(records(), testing::IsEmpty());
}

// `ferry status --watch` reads a device time and again, and may have no right to leave a record.
TEST_F(StuckChildTest, IsTheOnlyOneAtARead) {
  tree_.file("sys/other", "1\n");
  const auto read = writer_.read("sys/unbind", 200ms);
  ASSERT_FALSE(read);
  ASSERT_THAT(records(), testing::SizeIs(1));
  pid_ = nlohmann::json::parse(must(host_.read_file("run/ferry/stuck-writes/" + records()[0])))
             .at("pid")
             .get<int>();
  const auto again = writer_.read("sys/unbind", 200ms);
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, Errc::stuck);
  EXPECT_EQ(
      again.error().message,
      fmt::format("read /sys/unbind: an earlier read has not returned from the kernel (process {})", pid_));
  EXPECT_THAT(records(), testing::SizeIs(1));
  returned_ = true;
  {
    const UniqueFd writing = must(host_.open("sys/unbind", O_WRONLY));  // the read returns
  }
  siginfo_t end{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(pid_), &end, WEXITED | WNOWAIT), 0) << "it ends then";
  EXPECT_EQ(must(writer_.read("sys/other", 20s)), "1") << "another file is read";
}

/// Its records of what hangs stay.
class Keeping final : public HostFs {
 public:
  using HostFs::HostFs;
  Result<> remove_file(const std::filesystem::path& relative) override {
    return fail(error_from_errno(EROFS, "remove /" + relative.string()));
  }
};

// A record holds for as long as its process lives, and hostd lives long.
TEST_F(StuckChildTest, WhoseRecordStaysDoesNotOutliveItsAnswer) {
  tree_.file("sys/other", "");
  Keeping keeping(tree_.path());
  SpawningWriter writer(keeping, "/proc/self/exe", 1ms);
  const std::vector<AttributeWrite> writes = {{.path = "sys/unbind", .value = "0000:65:00.0"},
                                              {.path = "sys/other", .value = "1"}};
  Result<> written = fail(Errc::failed, "not yet");
  std::jthread waiting([&] { written = writer.write_in_order(writes, {}); });
  wait_for_a_record();
  ASSERT_THAT(records(), testing::SizeIs(1));
  const int pid = nlohmann::json::parse(must(host_.read_file("run/ferry/stuck-writes/" + records()[0])))
                      .at("pid")
                      .get<int>();
  const UniqueFd reader = must(host_.open("sys/unbind", O_RDONLY));
  waiting.join();
  EXPECT_TRUE(written);
  EXPECT_EQ(host_.read_file("sys/other").value(), "1") << "what is behind it is still written";
  EXPECT_FALSE(HostFs("/").exists("proc/" + std::to_string(pid)));
  EXPECT_THAT(records(), testing::IsEmpty()) << "it takes the record away itself";
}

TEST_F(StuckChildTest, IsCollectedOnceItHasReturned) {
  tree_.file("sys/other", "");
  ASSERT_FALSE(hang());
  {
    const UniqueFd reader = must(host_.open("sys/unbind", O_RDONLY));
    siginfo_t ended{};
    ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(pid_), &ended, WEXITED | WNOWAIT), 0);
  }
  returned_ = true;
  ASSERT_TRUE(HostFs("/").exists(proc("stat"))) << "nobody has collected it yet";
  EXPECT_TRUE(writer_.write("sys/other", "1", 10s));
  EXPECT_FALSE(HostFs("/").exists(proc("stat")));
}

TEST_F(StuckChildTest, WritesNothingBehindTheOneThatHangs) {
  tree_.file("sys/next", "");
  SpawningWriter writer(host_, "/proc/self/exe", 1ms);
  const std::vector<AttributeWrite> writes = {{.path = "sys/unbind", .value = "0000:65:00.0"},
                                              {.path = "sys/next", .value = "1"}};
  Result<> written;
  std::jthread waiting([&] { written = writer.write_in_order(writes, {}); });
  wait_for_a_record();
  ASSERT_THAT(records(), testing::SizeIs(1));
  EXPECT_EQ(host_.read_file("sys/next").value(), "");
  const UniqueFd reader = must(host_.open("sys/unbind", O_RDONLY));
  waiting.join();
  EXPECT_TRUE(written);
  EXPECT_EQ(host_.read_file("sys/next").value(), "1");
  EXPECT_THAT(records(), testing::IsEmpty());
}

// The record names the write that the child is at, however many of its writes are slow.
TEST_F(StuckChildTest, IsRecordedWithEachOfSeveralWritesThatIsSlow) {
  ASSERT_EQ(::mkfifo((tree_.path() / "sys/bind").c_str(), 0600), 0);
  std::vector<AttributeWrite> writes;
  for (const char* name : {"sys/a", "sys/unbind", "sys/b", "sys/bind", "sys/c"}) {
    if (!host_.exists(name)) tree_.file(name, "");
    writes.push_back({.path = name, .value = "1"});
  }
  const auto wait_for = [&](const std::string& act) {
    const auto end = std::chrono::steady_clock::now() + 20s;
    std::string recorded;
    while (recorded != act && std::chrono::steady_clock::now() < end) {
      for (const std::string& name : records()) {
        const auto record = nlohmann::json::parse(
            host_.read_file("run/ferry/stuck-writes/" + name).value_or(""), nullptr, false);
        recorded = record.is_object() ? record.value("act", "") : "";
      }
    }
    return recorded;
  };
  SpawningWriter writer(host_, "/proc/self/exe", 1ms);
  std::vector<std::size_t> begun;
  Result<> written = fail(Errc::failed, "not yet");
  std::jthread waiting(
      [&] { written = writer.write_in_order(writes, [&](std::size_t i) { begun.push_back(i); }); });
  for (const auto* slow : {"sys/unbind", "sys/bind"}) {
    EXPECT_EQ(wait_for(std::string("write /") + slow), std::string("write /") + slow);
    const UniqueFd reader = must(host_.open(slow, O_RDONLY));
    std::array<char, 1> value{};
    EXPECT_EQ(::read(reader.get(), value.data(), value.size()), 1);
  }
  waiting.join();
  EXPECT_TRUE(written);
  EXPECT_THAT(begun, testing::ElementsAre(0U, 1U, 2U, 3U, 4U));
  EXPECT_EQ(host_.read_file("sys/c").value(), "1");
  EXPECT_THAT(records(), testing::IsEmpty());
}

// The parent that gave up makes a new plan, which does not expect further writes of the child.
TEST_F(StuckChildTest, WritesNothingMoreOnceItIsLeftBehind) {
  tree_.file("sys/first", "");
  tree_.file("sys/next", "");
  const std::vector<AttributeWrite> writes = {{.path = "sys/first", .value = "1"},
                                              {.path = "sys/unbind", .value = "0000:65:00.0"},
                                              {.path = "sys/next", .value = "1"}};
  constexpr auto kDeadline = 2000ms;
  for (const auto slow : {1ms, kDeadline}) {  // recorded before the deadline, or only then
    returned_ = false;
    SpawningWriter writer(host_, "/proc/self/exe", slow, kDeadline);
    ASSERT_TRUE(writer.write("sys/first", "0", kWriteDeadline)) << "its child has started";
    std::vector<std::size_t> begun;
    const auto written = writer.write_in_order(writes, [&](std::size_t i) { begun.push_back(i); });
    ASSERT_FALSE(written);
    EXPECT_EQ(written.error().code, Errc::stuck);
    EXPECT_THAT(written.error().message, HasSubstr("write /sys/unbind: still in the kernel after 2000 ms"));
    EXPECT_THAT(begun, testing::ElementsAre(0U, 1U));
    ASSERT_THAT(records(), testing::SizeIs(1));
    pid_ = nlohmann::json::parse(must(host_.read_file("run/ferry/stuck-writes/" + records()[0])))
               .at("pid")
               .get<int>();
    EXPECT_EQ(read_what_it_writes(), "0000:65:00.0");
    EXPECT_EQ(host_.read_file("sys/next").value(), "");
    EXPECT_THAT(records(), testing::IsEmpty()) << "it takes the record away itself";
  }
}

// Its earlier writes stand: a later repeat or undo relies on them.
TEST_F(StuckChildTest, WhichDiesIsMissedAtTheWriteThatItWasAt) {
  std::vector<AttributeWrite> writes;
  for (const char* name : {"sys/a", "sys/b", "sys/c", "sys/unbind", "sys/d", "sys/e"}) {
    if (std::string_view(name) != "sys/unbind") tree_.file(name, "");
    writes.push_back({.path = name, .value = "1"});
  }
  std::vector<std::size_t> begun;
  Result<> written;
  std::jthread waiting(
      [&] { written = writer_.write_in_order(writes, [&](std::size_t i) { begun.push_back(i); }); });
  const auto end = std::chrono::steady_clock::now() + 20s;
  while (act().find("write /sys/unbind") == std::string::npos && std::chrono::steady_clock::now() < end)
    std::this_thread::yield();
  ASSERT_EQ(::kill(std::stoi(act()), SIGKILL), 0);
  waiting.join();
  ASSERT_FALSE(written);
  EXPECT_THAT(written.error().message, HasSubstr("write /sys/unbind: the writing process ended"));
  EXPECT_THAT(begun, testing::ElementsAre(0U, 1U, 2U, 3U));
  EXPECT_EQ(host_.read_file("sys/d").value(), "");
}

TEST_F(StuckChildTest, MayBeOneThatReads) {
  SpawningWriter writer(host_, "/proc/self/exe", 1ms);
  const auto read = writer.read("sys/unbind", 50ms);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, Errc::stuck);
  EXPECT_THAT(read.error().message, HasSubstr("read /sys/unbind: still in the kernel"));
  EXPECT_THAT(must(host_.list("run/ferry/stuck-writes")), testing::SizeIs(1));
  // Lets it return.
  const UniqueFd end = must(host_.open("sys/unbind", O_RDWR));
  EXPECT_EQ(::write(end.get(), "\n", 1), 1);
}

TEST_F(StuckChildTest, IsLeftBehindAliveAndItsWriteIsMadeOnce) {
  ASSERT_FALSE(hang());
  ASSERT_GT(pid_, 0);
  int status = 0;
  EXPECT_EQ(::waitpid(pid_, &status, WNOHANG), 0) << "it was killed";
  EXPECT_EQ(read_what_it_writes(), "0000:65:00.0");
}

// A process in another PID namespace does not see that this one has ended.
TEST_F(StuckChildTest, TakesItsOwnRecordAwayWhenItReturnsAtLast) {
  ASSERT_FALSE(hang());
  EXPECT_THAT(must(host_.list("run/ferry/stuck-writes")), testing::SizeIs(1));
  read_what_it_writes();
  EXPECT_THAT(must(host_.list("run/ferry/stuck-writes")), testing::IsEmpty());
}

TEST_F(StuckChildTest, HoldsNothingOfOurs) {
  tree_.file("secret", "");
  // A library may open a file so: without close-on-exec.
  const UniqueFd ours(::open((tree_.path() / "secret").c_str(), O_RDONLY));
  std::optional<NodeLock> lock = must(NodeLock::take(host_, 0ms));
  tree_.file("sys/other", "");
  ASSERT_TRUE(writer_.write("sys/other", "1", kWriteDeadline)) << "its child has started";
  ASSERT_FALSE(hang());
  ASSERT_GT(pid_, 0);

  const HostFs real("/");
  int pages = 0;
  for (const std::string& fd : must(real.list(proc("fd")))) {
    const std::string target = must(real.link_target(proc("fd/") + fd));
    const bool known =
        target == "/dev/null" || (fd == "0" && target.starts_with("socket:")) ||
        (target.starts_with("/memfd:ferry-writes") && std::stoi(fd) > STDERR_FILENO && pages++ == 0) ||
        target == tree_.path() || target == tree_.path() / "run/ferry/hostd/acts" / std::to_string(pid_);
    EXPECT_TRUE(known) << "descriptor " << fd << " is " << target;
  }
  EXPECT_EQ(real.read_file(proc("environ")).value(), "") << "environment";

  lock.reset();
  EXPECT_TRUE(NodeLock::take(host_, 0ms)) << "the stuck child keeps the node's lock";
}

/// The child of a run that was killed as soon as its last write had begun, so no record says that it is slow.
class ChildOfAKilledRun : public StuckChildTest {
 protected:
  void SetUp() override {
    StuckChildTest::SetUp();
    tree_.file("sys/next", "");
    const pid_t run = ::fork();
    if (run == 0) {
      const std::vector<AttributeWrite> writes = {{.path = "sys/unbind", .value = "0000:65:00.0"},
                                                  {.path = "sys/next", .value = "1"}};
      (void)writer_.write_in_order(writes, {});
      ::_exit(1);
    }
    const auto end = std::chrono::steady_clock::now() + 20s;
    while (act().empty() && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    ::kill(run, SIGKILL);
    ::waitpid(run, nullptr, 0);
    EXPECT_THAT(act(), testing::EndsWith("\nwrite /sys/unbind\n0000:65:00.0"));
    pid_ = std::stoi(act());
  }
};

TEST_F(ChildOfAKilledRun, WritesNothingBehindWhatItIsAt) {
  std::optional<Result<NodeLock>> next;
  std::jthread waiting([&] { next = NodeLock::take(host_, 20s); });
  EXPECT_EQ(read_what_it_writes(), "0000:65:00.0");
  waiting.join();
  ASSERT_TRUE(next && *next);
  const auto end = std::chrono::steady_clock::now() + 20s;
  while (!acts().empty() && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  EXPECT_THAT(acts(), testing::IsEmpty()) << "its process ends";
  EXPECT_EQ(host_.read_file("sys/next").value(), "");
}

TEST_F(ChildOfAKilledRun, IsWaitedForByTheNextRun) {
  std::optional<Result<NodeLock>> next;
  std::jthread waiting([&] { next = NodeLock::take(host_, 20s); });
  EXPECT_EQ(read_what_it_writes(), "0000:65:00.0");
  waiting.join();
  ASSERT_TRUE(next && *next);
  EXPECT_EQ(act(), "");
  EXPECT_THAT(must(stuck_writes(host_)), testing::IsEmpty());
}

TEST_F(ChildOfAKilledRun, IsRecordedByTheNextRunIfItsWriteHangs) {
  const auto next = NodeLock::take(host_, 20s);
  ASSERT_TRUE(next) << "the others are not kept waiting";
  const std::string name = "run/ferry/stuck-writes/" + std::to_string(pid_) + ".json";
  const auto record = nlohmann::json::parse(must(host_.read_file(name)));
  EXPECT_EQ(record.at("act"), "write /sys/unbind");
  EXPECT_EQ(record.at("value"), "0000:65:00.0");
  read_what_it_writes();
  const auto end = std::chrono::steady_clock::now() + 20s;
  while (!acts().empty() && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  EXPECT_THAT(acts(), testing::IsEmpty());
  EXPECT_FALSE(host_.exists(name)) << "it takes the record away itself";
}

TEST_F(ChildOfAKilledRun, IsRecordedOnce) {
  ASSERT_TRUE(NodeLock::take(host_, 20s));
  const std::string name = "run/ferry/stuck-writes/" + std::to_string(pid_) + ".json";
  const std::string record = must(host_.read_file(name));
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_TRUE(NodeLock::take(host_, 20s));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 10s) << "nobody waits for it again";
  EXPECT_EQ(must(host_.read_file(name)), record) << "what is late stays so";
  read_what_it_writes();
}

TEST_F(StuckChildTest, DoesNotInheritWhichSignalsWeWaitFor) {
  sigset_t waited_for;
  sigset_t before;
  sigemptyset(&waited_for);
  sigaddset(&waited_for, SIGTERM);
  ::pthread_sigmask(SIG_BLOCK, &waited_for, &before);
  EXPECT_FALSE(hang());
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  EXPECT_THAT(must(HostFs("/").read_file(proc("status"))), HasSubstr("SigBlk:\t0000000000000000\n"));
}

TEST_F(StuckChildTest, DoesNotKeepOtherWritesBack) {
  tree_.file("sys/other", "");
  ASSERT_TRUE(writer_.write("sys/other", "1", kWriteDeadline));
  ASSERT_FALSE(hang());
  EXPECT_TRUE(writer_.write("sys/other", "2", 10s));
  EXPECT_EQ(host_.read_file("sys/other").value(), "2");
}

TEST_F(StuckChildTest, IsInASessionOfItsOwn) {
  ASSERT_FALSE(hang());
  ASSERT_GT(pid_, 0);
  EXPECT_EQ(::getsid(pid_), pid_) << "a Ctrl-C meant for us would reach it";
}

/// A host writer's child whose run is gone before it has begun what it was asked to do.
TEST_F(HostWriterTest, DoesNothingThatHadNotBegunWhenItsRunWasKilled) {
  tree_.file("sys/other", "");
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()), 0);
  UniqueFd ours(ends[0]);
  UniqueFd theirs(ends[1]);
  const int pid = must(spawn("/proc/self/exe", {"ferry", std::string(kHostActVerb), tree_.path().string()},
                             {.in = theirs.get()}));
  theirs.reset();
  ASSERT_EQ(::kill(pid, SIGSTOP), 0);
  ASSERT_EQ(::waitpid(pid, nullptr, WUNTRACED), pid);
  const std::string order("wsys/other\0001", 12);
  ASSERT_EQ(::send(ours.get(), order.data(), order.size(), MSG_NOSIGNAL), 12);
  ours.reset();
  ASSERT_EQ(::kill(pid, SIGCONT), 0);
  EXPECT_EQ(reap(pid), 0);
  EXPECT_EQ(host_.read_file("sys/other").value(), "");
}

// A child that was killed has left the first record, and an idle child the second.
TEST_F(HostWriterTest, IsTakenForAtNothingWhereNoActIsUnderWay) {
  tree_.file("run/ferry/hostd/acts/700", "700 \nwrite /x\ny");
  tree_.file("sys/other", "");
  ASSERT_TRUE(writer_.write("sys/other", "1", 10s));
  ASSERT_THAT(must(host_.list("run/ferry/hostd/acts")), testing::SizeIs(2));
  EXPECT_TRUE(NodeLock::take(host_, 0ms));
  EXPECT_THAT(must(host_.list("run/ferry/hostd/acts")), testing::SizeIs(1));
  EXPECT_FALSE(host_.exists("run/ferry/stuck-writes"));
}

TEST_F(HostWriterTest, KeepsTheNextRunWhereItCannotBeReadWhatIsUnderWay) {
  for (const char* text : {"{", "7", "\n\n\n", " \na\nv", "7\na\nv", "x \na\nv", "0 \na\nv", "-7 \na\nv",
                           "7x \na\nv", "99999999999 \na\nv", "7 \na", "7 \n\nv", "7 pid:[../x]\na\nv",
                           "7 pid:[]\na\nv", "7 [1]\na\nv", "7 pid:[40265318360]\na\nv"}) {
    tree_.file("run/ferry/hostd/acts/700", text);
    const UniqueFd held = must(host_.open("run/ferry/hostd/acts/700", O_RDONLY));
    ASSERT_EQ(::flock(held.get(), LOCK_EX), 0);
    const auto done = wait_for_acts(host_, 0ms);
    ASSERT_FALSE(done) << text;
    EXPECT_EQ(done.error().code, Errc::stuck);
  }
}

}  // namespace
}  // namespace ferry
