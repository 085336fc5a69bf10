// SPDX-License-Identifier: Apache-2.0
#include "kubevirt-plugin/open_probe.h"

#include <atomic>
#include <cerrno>
#include <fcntl.h>
#include <filesystem>
#include <future>
#include <memory>
#include <sched.h>
#include <string>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include <gmock/gmock.h>

#include "tests/support/fake_kernel.h"

namespace ferry {
namespace {

using namespace std::chrono_literals;

constexpr auto kPatience = 20s;

class OpenProbeTest : public testing::Test {
 protected:
  void SetUp() override { kernel.file("dev/vfio/15", ""); }
  test::FakeKernel kernel;
};

TEST_F(OpenProbeTest, TellsOnlyABusyNodeFromOthers) {
  const auto answer = [&](int error) {
    return OpenProbe(kernel, kPatience, [error](int /*fd*/) { return error; }).is_open(15);
  };
  EXPECT_TRUE(answer(EBUSY));
  EXPECT_FALSE(answer(0));
  EXPECT_FALSE(answer(ENODEV));
  EXPECT_FALSE(answer(EPERM)) << "which it cannot learn";
}

TEST_F(OpenProbeTest, OpensNothingWhereThereIsNoNode) {
  EXPECT_FALSE(OpenProbe(kernel, kPatience, [](int /*fd*/) { return EBUSY; }).is_open(16));
  EXPECT_FALSE(OpenProbe(kernel, kPatience).is_open(15)) << "there, and nobody's";
}

TEST_F(OpenProbeTest, TakesSilenceForOpenAndAsksNobodyElseMeanwhile) {
  // The first call of it hangs, as in the kernel, until it is let go; it may outlive the test's own frame.
  struct Hang {
    std::promise<void> let_go;
    std::shared_future<void> released = let_go.get_future().share();
    std::atomic<int> calls = 0;
  };
  const auto hang = std::make_shared<Hang>();
  const OpenProbe probe(kernel, 300ms, [hang](int /*fd*/) {
    if (hang->calls.fetch_add(1) == 0) hang->released.wait();
    return 0;
  });
  EXPECT_TRUE(probe.is_open(15)) << "no answer by the deadline";
  EXPECT_TRUE(probe.is_open(15)) << "another attempt would have said that it is not";
  EXPECT_LE(hang->calls, 1);

  hang->let_go.set_value();
  const auto give_up = std::chrono::steady_clock::now() + kPatience;
  bool open = true;
  while ((open = probe.is_open(15)) && std::chrono::steady_clock::now() < give_up) std::this_thread::yield();
  EXPECT_FALSE(open) << "asked anew once the first has ended";
}

// The kernel's own EBUSY, by the way that a probe takes: a terminal that is somebody's alone stands for a
// group that is. In a user namespace, since it is nobody's alone for the administrator.
enum class Proof { right, wrong, not_to_be_had };

Proof prove_with_a_terminal(const std::filesystem::path& root) {
  const std::string terminals = (root / "dev/vfio").string();
  if (::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0 ||
      ::mount("devpts", terminals.c_str(), "devpts", 0, "newinstance,ptmxmode=0666") != 0)
    return Proof::not_to_be_had;
  const UniqueFd master(::open((terminals + "/ptmx").c_str(), O_RDWR | O_NOCTTY | O_CLOEXEC));
  int unlocked = 0;
  if (!master.valid() || ::ioctl(master.get(), TIOCSPTLCK, &unlocked) != 0) return Proof::not_to_be_had;
  const UniqueFd owner(::open((terminals + "/0").c_str(), O_RDWR | O_NOCTTY | O_CLOEXEC));
  if (!owner.valid()) return Proof::not_to_be_had;

  const HostFs host(root);  // as it is since the mount
  const OpenProbe probe(host, kPatience);
  if (probe.is_open(0)) return Proof::wrong;  // open, and not alone
  if (::ioctl(owner.get(), TIOCEXCL) != 0 || !probe.is_open(0)) return Proof::wrong;
  return ::ioctl(owner.get(), TIOCNXCL) == 0 && !probe.is_open(0) ? Proof::right : Proof::wrong;
}

TEST_F(OpenProbeTest, IsToldByTheKernelThatANodeIsBusy) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(static_cast<int>(prove_with_a_terminal(kernel.root())));
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (static_cast<Proof>(WEXITSTATUS(status)) == Proof::not_to_be_had)
    GTEST_SKIP() << "no terminals of one's own in a user namespace here";
  EXPECT_EQ(static_cast<Proof>(WEXITSTATUS(status)), Proof::right);
}

// As an Allocate of several groups does.
TEST_F(OpenProbeTest, AsksSeveralGroupsAtOnceAndAgain) {
  kernel.file("dev/vfio/16", "");
  const OpenProbe probe(kernel, kPatience, [](int /*fd*/) { return EBUSY; });
  for (int round = 0; round < 100; ++round) {
    const auto one = probe.ask(15);
    const auto other = probe.ask(16);
    const auto nobody = probe.ask(17);
    EXPECT_TRUE(other());
    EXPECT_TRUE(one());
    EXPECT_FALSE(nobody());
  }
}

}  // namespace
}  // namespace ferry
