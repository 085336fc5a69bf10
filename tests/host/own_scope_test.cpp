// SPDX-License-Identifier: Apache-2.0
// The child is made with fork(2): each test is a process of its own, so that the fake systemd's thread is
// none of it. Control groups are those of files; the virtual node has real ones.
#include <array>
#include <csignal>
#include <fcntl.h>
#include <filesystem>
#include <functional>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

#include <gmock/gmock.h>

#include "host/system/systemd_services.h"
#include "tests/host/fake_systemd.h"
#include "tests/support/scratch_directory.h"

namespace ferry::host {
namespace {

using test::FakeSystemd;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr const char* kNumber = "4711";  // of the child, as the host's /proc has it

class OwnScope : public testing::Test {
 protected:
  OwnScope() {
    tree_.directory("run/systemd");
    tree_.directory("proc/" + std::string(kNumber));
    tree_.link("proc/self", kNumber);
  }
  std::filesystem::path door() const { return tree_.path() / "run/systemd/private"; }

  /// What in_own_scope() returns where `work` is done; the child's own end is no part of the test.
  int status_of(const std::function<int()>& work) {
    const pid_t user = ::fork();
    if (user == 0) {
      const int status = in_own_scope(host_, work);
      ::_exit(status);
    }
    int status = 0;
    ::waitpid(user, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

  test::ScratchDirectory tree_;
  HostFs host_{tree_.path()};
};

TEST_F(OwnScope, TheWorkIsDoneByAChildThatSystemdHasMoved) {
  tree_.file("proc/4711/cgroup", "0::/system.slice/ferry-hostd-4711.scope\n");
  const FakeSystemd systemd(door(), FakeSystemd::Manner::prompt);
  const std::string done = (tree_.path() / "done").string();
  EXPECT_EQ(status_of([&] { return ::creat(done.c_str(), 0600) >= 0 ? 3 : 1; }), 3);
  EXPECT_TRUE(std::filesystem::exists(done));
  EXPECT_THAT(systemd.orders(),
              ElementsAre("StartTransientUnit ferry-hostd-4711.scope fail MemoryMax 536870912 PIDs 4711"))
      << "the container's limit does not apply, and the node has none";
}

TEST_F(OwnScope, TheWorkIsDoneWhereThereIsNoSystemd) {
  EXPECT_EQ(status_of([] { return 4; }), 4);
}

TEST_F(OwnScope, TheWorkIsDoneWhereSystemdRefuses) {
  const FakeSystemd systemd(door(), FakeSystemd::Manner::refuses);
  EXPECT_EQ(status_of([] { return 0; }), 0);
}

TEST_F(OwnScope, SignalsArePassedOn) {
  EXPECT_EQ(status_of([] {
              std::signal(SIGTERM, [](int) { ::_exit(7); });
              ::kill(::getppid(), SIGTERM);
              for (;;) ::pause();
              return 0;
            }),
            7);
}

TEST_F(OwnScope, AChildThatIsKilledIsNoSuccess) {
  EXPECT_EQ(status_of([] { return ::raise(SIGKILL); }), 128 + SIGKILL);
}

TEST_F(OwnScope, TheChildEndsWithTheOneThatStaysBehind) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  EXPECT_EQ(status_of([] {
              ::kill(::getppid(), SIGKILL);
              for (;;) ::pause();
              return 0;
            }),
            -SIGKILL);
  ::close(ends[1]);
  char none = 0;
  EXPECT_EQ(::read(ends[0], &none, 1), 0) << "the last one that had the other end is gone";
  ::close(ends[0]);
}

TEST_F(OwnScope, AHostWithoutProcHasNoNumberForIt) {
  std::filesystem::remove(tree_.path() / "proc/self");
  const FakeSystemd systemd(door(), FakeSystemd::Manner::prompt);
  EXPECT_EQ(status_of([] { return 0; }), 0);
  EXPECT_THAT(systemd.orders(), IsEmpty()) << "0 would be whoever asks";
}

}  // namespace
}  // namespace ferry::host
