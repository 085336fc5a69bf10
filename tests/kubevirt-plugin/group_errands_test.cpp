// SPDX-License-Identifier: Apache-2.0
#include "kubevirt-plugin/group_errands.h"

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <thread>

#include <gtest/gtest.h>

namespace ferry {
namespace {

using namespace std::chrono_literals;

constexpr auto kPatience = 20s;

/// A job that hangs, as in the kernel, until it is let go; it may outlive the test's own frame.
struct Hang {
  std::promise<void> let_go;
  std::shared_future<void> released = let_go.get_future().share();
};

TEST(GroupErrands, WaitsNoLongerThanTheDeadlineAndBehindNobodyLate) {
  const auto hang = std::make_shared<Hang>();
  const auto calls = std::make_shared<std::atomic<int>>();
  const GroupErrands errands(2s);
  EXPECT_FALSE(errands.begin(15, [hang] { hang->released.wait(); })());
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_FALSE(errands.begin(15, [calls] { ++*calls; })());
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 1500ms);
  EXPECT_EQ(*calls, 0) << "nobody is sent after one who does not come back";
  EXPECT_TRUE(errands.begin(16, [] {})()) << "another group is";

  hang->let_go.set_value();
  const auto give_up = std::chrono::steady_clock::now() + kPatience;
  while (!errands.begin(15, [calls] { ++*calls; })() && std::chrono::steady_clock::now() < give_up)
    std::this_thread::yield();
  EXPECT_GE(*calls, 1) << "once the first has ended";
}

// Two openers of a group would find it busy with each other.
TEST(GroupErrands, HasOneJobAtATimeOnAGroup) {
  const auto hang = std::make_shared<Hang>();
  const auto order = std::make_shared<std::atomic<int>>();
  const GroupErrands errands(kPatience);
  const auto first = errands.begin(15, [hang, order] {
    hang->released.wait();
    int none = 0;
    order->compare_exchange_strong(none, 1);
  });
  const auto second = errands.begin(15, [order] {
    int one = 1;
    order->compare_exchange_strong(one, 2);
  });
  EXPECT_TRUE(errands.begin(16, [] {})());
  hang->let_go.set_value();
  EXPECT_TRUE(second());
  EXPECT_TRUE(first());
  EXPECT_EQ(*order, 2);
}

// As Allocate calls of several groups do.
TEST(GroupErrands, DoesSeveralGroupsAtOnceAndAgain) {
  const auto calls = std::make_shared<std::atomic<int>>();
  const GroupErrands errands(kPatience);
  for (int round = 0; round < 100; ++round) {
    const auto one = errands.begin(15, [calls] { ++*calls; });
    const auto other = errands.begin(16, [calls] { ++*calls; });
    EXPECT_TRUE(other());
    EXPECT_TRUE(one());
  }
  EXPECT_EQ(*calls, 200);
}

}  // namespace
}  // namespace ferry
