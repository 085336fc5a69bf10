// SPDX-License-Identifier: Apache-2.0
#include "kubevirt-plugin/open_probe.h"

#include <atomic>
#include <cerrno>
#include <future>
#include <memory>
#include <thread>

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

}  // namespace
}  // namespace ferry
