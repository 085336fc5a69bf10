// SPDX-License-Identifier: Apache-2.0
// Programs of the host that the host writer's child runs.
#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <fcntl.h>
#include <sstream>
#include <string>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>
#include <vector>

#include <gmock/gmock.h>

#include "common/process/spawn.h"
#include "hostfs/host_writer.h"
#include "hostfs/in_flight_writes.h"
#include "hostfs/kernel_facts.h"
#include "hostfs/stuck_writes.h"
#include "tests/support/must.h"
#include "tests/support/scratch_directory.h"

namespace ferry {
namespace {

using test::must;
using testing::ContainsRegex;
using testing::HasSubstr;

/// Programs of this machine, whose root is the host's.
class HostProgramTest : public testing::Test {
 protected:
  Result<> run(const std::string& script) {
    return writer_.run(
        {.root = {}, .words = {"/bin/sh", "-c", script, "sh", tree_.path().string()}, .device = "d"},
        kWriteDeadline);
  }
  test::ScratchDirectory tree_;
  HostFs host_{"/"};
  SpawningWriter writer_{host_};
};

TEST_F(HostProgramTest, IsGivenItsWordsAndNothingOfOurs) {
  ASSERT_TRUE(::setenv("FERRY_TEST_SECRET", "x", 1) == 0);
  const auto done =
      run("{ env | grep -c SECRET; ls /proc/self/fd | wc -l; readlink /proc/self/fd/0; pwd; } > \"$1/out\"");
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ(HostFs(tree_.path()).read_file("out").value(), "0\n5\n/dev/null\n/\n")
      << "0, 1, 2, the list itself, and what tells of it";
}

// A service that is stopped takes the host writer's process with it, and not what sleeps in the kernel.
TEST_F(HostProgramTest, IsStillRecordedWhenItsParentIsKilled) {
  tree_.file("out", "");
  ASSERT_EQ(::mkfifo((tree_.path() / "held").c_str(), 0600), 0);
  const UniqueFd held(::open((tree_.path() / "held").c_str(), O_RDWR | O_CLOEXEC));
  const auto done = run(R"(echo $$ $PPID > "$1/out"; kill -9 $PPID; exec cat "$1/held")");
  ASSERT_FALSE(done);
  int pid = 0;
  int parent = 0;
  std::istringstream(must(HostFs(tree_.path()).read_file("out"))) >> pid >> parent;
  const std::string file = "run/ferry/hostd/acts/" +
                           file_name_of({.pid = parent, .pid_namespace = must(own_pid_namespace(host_))});
  const UniqueFd record = must(host_.open(file, O_RDONLY));
  EXPECT_NE(::flock(record.get(), LOCK_SH | LOCK_NB), 0) << "it lives, and holds the lock";
  EXPECT_EQ(std::stoi(must(host_.read_file(file))), pid);
  ASSERT_EQ(::kill(pid, SIGKILL), 0);
  EXPECT_EQ(::flock(record.get(), LOCK_SH), 0);
  (void)host_.remove_file(file);
}

TEST_F(HostProgramTest, ReportsItsStatusAndThatThereIsNone) {
  ASSERT_FALSE(run("exit 3"));
  EXPECT_EQ(run("exit 3").error().code, Errc::failed);
  EXPECT_THAT(run("exit 3").error().message, HasSubstr("it ended with status 3"));
  EXPECT_THAT(run("kill -9 $$").error().message, HasSubstr("it ended with status 137"));
  const auto none = writer_.run({.root = {}, .words = {"/no/such/program"}, .device = "d"}, kWriteDeadline);
  EXPECT_EQ(none.error().code, std::errc::no_such_file_or_directory);
  EXPECT_EQ(
      writer_.run({.root = "no/such/root", .words = {"/bin/sh"}, .device = {}}, kWriteDeadline).error().code,
      std::errc::no_such_file_or_directory);
}

TEST_F(HostProgramTest, ReportsItsStatusWhereAParentIgnoresItsChildren) {
  const auto before = std::signal(SIGCHLD, SIG_IGN);
  writer_.prepare(1);  // its child inherits that
  const auto failing = spawn("false", {"false"}, {});
  const int status = failing ? reap(*failing) : 0;
  (void)std::signal(SIGCHLD, before);
  EXPECT_NE(status, 0) << "the kernel reaped it";
  EXPECT_THAT(run("exit 3").error().message, HasSubstr("it ended with status 3"));
  EXPECT_TRUE(run("exit 0"));
}

// The one that it has started holds the other end of the pipe for as long as it lives.
TEST_F(HostProgramTest, IsKilledWithWhatItStartedWhereItMayBe) {
  ASSERT_EQ(::mkfifo((tree_.path() / "held").c_str(), 0600), 0);
  const UniqueFd reader(::open((tree_.path() / "held").c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  const auto run_late = [&](const std::string& script, std::chrono::milliseconds deadline) {
    return writer_.run({.root = {},
                        .words = {"/bin/sh", "-c", script, "sh", tree_.path().string()},
                        .device = {},
                        .killed_when_late = true},
                       deadline);
  };
  std::array<char, 16> read{};
  ssize_t begun = 0;
  // On a busy machine the script may not have begun by its deadline.
  for (std::chrono::milliseconds deadline(1500); begun == 0 && deadline < std::chrono::seconds(20);
       deadline *= 2) {
    const auto killed = run_late(R"(exec > "$1/held"; echo begun; sleep 100 & sleep 100)", deadline);
    ASSERT_FALSE(killed);
    EXPECT_EQ(killed.error().code, std::errc::timed_out) << killed.error().message;
    EXPECT_THAT(killed.error().message, ContainsRegex("it did not end within [0-9.]+ s, and was killed"));
    begun = ::read(reader.get(), read.data(), read.size());
  }
  EXPECT_EQ(begun, 6) << "it had begun";
  EXPECT_EQ(::read(reader.get(), read.data(), read.size()), 0) << "nobody has the other end any more";
  const std::vector<StuckWrite> stuck = must(stuck_writes(host_));
  EXPECT_TRUE(std::ranges::none_of(stuck, [&](const StuckWrite& one) {
    return one.act.find(tree_.path().string()) != std::string::npos;
  }));

  EXPECT_TRUE(run_late("exit 0", kWriteDeadline));
  EXPECT_THAT(run_late("exit 3", kWriteDeadline).error().message, HasSubstr("it ended with status 3"));
  const HostCommand none{.root = {}, .words = {"/no/such/program"}, .device = {}, .killed_when_late = true};
  EXPECT_EQ(writer_.run(none, kWriteDeadline).error().code, std::errc::no_such_file_or_directory);
}

TEST_F(HostProgramTest, GivesWhatItPrinted) {
  const auto output = [&](const std::string& script) {
    return writer_.output({.root = {}, .words = {"/bin/sh", "-c", script}, .device = {}}, kWriteDeadline);
  };
  EXPECT_EQ(output("echo one; echo two >&2; echo three").value_or(""), "one\nthree\n");
  EXPECT_EQ(output("true").value_or("an error"), "");
  EXPECT_EQ(output("head -c 61440 /dev/zero").value_or("").size(), 61440U);
  EXPECT_EQ(output("head -c 61441 /dev/zero").error().code, std::errc::message_size);
  EXPECT_EQ(output("echo one; exit 1").error().code, Errc::failed);
  EXPECT_TRUE(run("echo lost")) << "what nobody asks for goes nowhere";
}

TEST_F(HostProgramTest, GivesWhatItPrintedAndIsKilledWhenItIsLate) {
  const auto output = [&](const std::string& script, std::chrono::milliseconds deadline = kWriteDeadline) {
    return writer_.output(
        {.root = {}, .words = {"/bin/sh", "-c", script}, .device = {}, .killed_when_late = true}, deadline);
  };
  EXPECT_EQ(must(output("echo one; echo two >&2")), "one\n");
  EXPECT_EQ(output("echo one; exit 1").error().code, Errc::failed);
  EXPECT_THAT(output("echo one; sleep 100", std::chrono::milliseconds(300)).error().message,
              HasSubstr("did not end within 0.3 s, and was killed"));
}

TEST_F(HostProgramTest, GivesAllThatItPrintedWhateverItsStatus) {
  const auto transcript = [&](const std::string& script,
                              std::chrono::milliseconds deadline = kWriteDeadline) {
    return writer_.transcript(
        {.root = {}, .words = {"/bin/sh", "-c", script}, .device = {}, .killed_when_late = true}, deadline);
  };
  EXPECT_EQ(must(transcript("echo one; echo two >&2; exit 3")), "one\ntwo\n");
  EXPECT_EQ(must(transcript("true")), "");
  const auto late = transcript("echo one; sleep 100", std::chrono::milliseconds(300));
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, std::errc::timed_out);
  EXPECT_THAT(late.error().message, HasSubstr("did not end within 0.3 s, and was killed"));
  const HostCommand none{.root = {}, .words = {"/no/such/program"}, .device = {}};
  EXPECT_EQ(writer_.transcript(none, kWriteDeadline).error().code, std::errc::no_such_file_or_directory);
}

// Another root directory is entered before the program is looked for there.
TEST_F(HostProgramTest, IsRunBelowItsRootDirectory) {
  const HostFs other(tree_.path());
  HostFs below(tree_.path());
  SpawningWriter writer(below);
  const auto none = writer.run({.root = {}, .words = {"/bin/sh"}, .device = {}}, kWriteDeadline);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code,
            ::geteuid() == 0 ? std::errc::no_such_file_or_directory : std::errc::operation_not_permitted);
}

}  // namespace
}  // namespace ferry
