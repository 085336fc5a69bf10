// SPDX-License-Identifier: Apache-2.0
#include "hostfs/bounded_caller.h"

#include <atomic>
#include <future>
#include <thread>

#include <gmock/gmock.h>

namespace ferry {
namespace {

using namespace std::chrono_literals;

TEST(BoundedCaller, GivesWhatTheJobReturns) {
  BoundedCaller caller(20s);
  EXPECT_EQ(caller.call<int>([] { return 7; }), 7);
  EXPECT_EQ(caller.call<std::string>([] { return std::string("again"); }), "again");
}

TEST(BoundedCaller, RunsItsJobsOnOneThread) {
  BoundedCaller caller(20s);
  const std::function<std::thread::id()> who = [] { return std::this_thread::get_id(); };
  const auto first = caller.call(who);
  EXPECT_EQ(caller.call(who), first);
  EXPECT_NE(first, std::this_thread::get_id());
}

TEST(BoundedCaller, LeavesALateJobBehindAndTakesTheNext) {
  auto unblock = std::make_shared<std::promise<void>>();
  auto ended = std::make_shared<std::promise<void>>();
  {
    BoundedCaller caller(3s);
    const auto late = caller.call<int>([unblock, ended] {
      unblock->get_future().wait();
      ended->set_value();
      return 1;
    });
    EXPECT_EQ(late, std::nullopt);
    EXPECT_EQ(caller.call<int>([] { return 2; }), 2);
  }
  unblock->set_value();
  EXPECT_EQ(ended->get_future().wait_for(20s), std::future_status::ready);
}

}  // namespace
}  // namespace ferry
