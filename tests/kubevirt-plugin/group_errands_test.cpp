// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <thread>

#include <gtest/gtest.h>

#include "kubevirt-plugin/discovery/sysfs_check.h"

namespace ferry::plugin {
namespace {

using namespace std::chrono_literals;

constexpr auto kPatience = 20s;

/// A job that hangs, as in the kernel, until it is let go; it may outlive the test's own frame.
struct Hang {
  std::promise<void> unblock;
  std::shared_future<void> released = unblock.get_future().share();
};

/// What has become of a job, for whoever asks for it.
struct Outcome {
  std::promise<GroupErrands::End> ended;
  std::future<GroupErrands::End> end = ended.get_future();
  std::thread::id ending_thread;

  GroupErrands::Then then() {
    return [this](const GroupErrands::End& how) {
      ending_thread = std::this_thread::get_id();
      ended.set_value(how);
    };
  }
};

bool is_done(const GroupErrands& errands, std::uint32_t group, const GroupErrands::Job& job) {
  Outcome outcome;
  errands.run({group}, job, outcome.then());
  return outcome.end.get().done;
}

TEST(GroupErrands, DoesAJobWhereItIsAsked) {
  const GroupErrands errands(kPatience);
  std::thread::id doer;
  Outcome outcome;
  errands.run(
      {15, 16}, [&](const auto& /*may_go_on*/) { doer = std::this_thread::get_id(); }, outcome.then());
  EXPECT_TRUE(outcome.end.get().done);
  EXPECT_EQ(doer, std::this_thread::get_id());
  EXPECT_EQ(outcome.ending_thread, std::this_thread::get_id());
}

TEST(GroupErrands, ReportsByAnotherThreadWhatIsLate) {
  const auto hang = std::make_shared<Hang>();
  const GroupErrands errands(100ms);
  Outcome outcome;
  std::atomic<bool> is_back = false;
  std::thread asker([&] {
    errands.run(
        {15}, [hang](const auto& /*may_go_on*/) { hang->released.wait(); }, outcome.then());
    is_back = true;
  });
  const auto end = outcome.end.get();
  EXPECT_FALSE(end.done);
  EXPECT_EQ(end.behind, std::nullopt);
  EXPECT_NE(outcome.ending_thread, asker.get_id());
  EXPECT_FALSE(is_back);
  hang->unblock.set_value();
  asker.join();  // and no caller gets a second answer, which a promise would not survive
}

TEST(GroupErrands, SendsNobodyAfterOneWhoIsLate) {
  const auto hang = std::make_shared<Hang>();
  const auto calls = std::make_shared<std::atomic<int>>();
  const GroupErrands errands(1s);
  Outcome late;
  const auto went_on = std::make_shared<std::promise<bool>>();
  errands.begin(
      {14, 15},
      [hang, went_on](const auto& may_go_on) {
        if (may_go_on(14) && may_go_on(15)) hang->released.wait();
        went_on->set_value(may_go_on(14));
      },
      late.then());
  EXPECT_FALSE(late.end.get().done);
  const auto begin = std::chrono::steady_clock::now();
  Outcome behind;
  errands.run(
      {14, 15}, [calls](const auto& /*may_go_on*/) { ++*calls; }, behind.then());
  EXPECT_EQ(behind.end.get().behind, 15U);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 900ms);
  EXPECT_EQ(*calls, 0) << "nobody is sent after one who does not come back";
  EXPECT_TRUE(is_done(errands, 16, [](const auto& /*may_go_on*/) {})) << "another group is";
  EXPECT_TRUE(is_done(errands, 14, [](const auto& /*may_go_on*/) {})) << "nor is it at that one any more";

  hang->unblock.set_value();
  const auto give_up = std::chrono::steady_clock::now() + kPatience;
  while (!is_done(errands, 15, [calls](const auto& /*may_go_on*/) { ++*calls; }) &&
         std::chrono::steady_clock::now() < give_up)
    std::this_thread::yield();
  EXPECT_GE(*calls, 1) << "once the first has ended";
  EXPECT_FALSE(went_on->get_future().get()) << "nobody waits for the rest of it";
}

// Two openers of a group would find it busy with each other.
TEST(GroupErrands, HasOneJobAtATimeOnAGroup) {
  const auto hang = std::make_shared<Hang>();
  const auto begun = std::make_shared<std::promise<void>>();
  std::atomic<bool> first_is_over = false;
  const GroupErrands errands(kPatience);
  Outcome first;
  errands.begin(
      {15},
      [hang, begun, &first_is_over](const auto& /*may_go_on*/) {
        begun->set_value();
        hang->released.wait();
        first_is_over = true;
      },
      first.then());
  begun->get_future().wait();
  EXPECT_TRUE(is_done(errands, 16, [](const auto& /*may_go_on*/) {}));
  std::thread releaser([hang] { hang->unblock.set_value(); });
  bool was_over = false;
  EXPECT_TRUE(is_done(errands, 15, [&](const auto& /*may_go_on*/) { was_over = first_is_over; }));
  EXPECT_TRUE(was_over);
  EXPECT_TRUE(first.end.get().done);
  releaser.join();
}

TEST(GroupErrands, WatchesOneAfterAnotherThatWasInTime) {
  const auto hang = std::make_shared<Hang>();
  const GroupErrands errands(100ms);
  for (int round = 0; round < 100; ++round) is_done(errands, 15, [](const auto& /*may_go_on*/) {});
  Outcome late;
  errands.begin(
      {15}, [hang](const auto& /*may_go_on*/) { hang->released.wait(); }, late.then());
  EXPECT_FALSE(late.end.get().done);
  hang->unblock.set_value();
}

// Four groups have longer than one. When the first of one group has its answer, the four are what is waited
// for.
TEST(GroupErrands, SeesADeadlineThatIsSoonerThanTheOneItWaitsFor) {
  constexpr auto kDeadline = 1s;
  const auto hang = std::make_shared<Hang>();
  const GroupErrands errands(kDeadline);
  const auto began = std::chrono::steady_clock::now();
  const auto hangs = [hang](const auto& /*may_go_on*/) { hang->released.wait(); };
  Outcome four;
  errands.begin({1, 2, 3, 4}, hangs, four.then());
  for (const std::uint32_t group : {15U, 16U}) {
    Outcome late;
    errands.begin({group}, hangs, late.then());
    EXPECT_FALSE(late.end.get().done);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - began, 4 * kDeadline) << "each is late by its own deadline";
  hang->unblock.set_value();
  four.end.get();
}

TEST(GroupErrands, EndsWithoutWaitingForWhatHangs) {
  const auto hang = std::make_shared<Hang>();
  Outcome outcome;
  {
    const GroupErrands errands(kPatience);
    const auto begun = std::make_shared<std::promise<void>>();
    errands.begin(
        {15},
        [hang, begun](const auto& /*may_go_on*/) {
          begun->set_value();
          hang->released.wait();
        },
        outcome.then());
    begun->get_future().wait();
  }
  EXPECT_FALSE(outcome.end.get().done);
  hang->unblock.set_value();
}

}  // namespace
}  // namespace ferry::plugin
