// SPDX-License-Identifier: Apache-2.0
#include "agent/rollout/change_history.h"

#include <chrono>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/agent/views.h"

namespace ferry::agent {
namespace {

using namespace std::chrono_literals;
using testing::IsEmpty;
using testing::Pair;
using testing::UnorderedElementsAre;

class ChangeHistoryTest : public testing::Test {
 protected:
  void saw(SeenPhase phase, std::chrono::milliseconds later = 1s, std::uint64_t wanted = 7) {
    SeenHost host;
    host.phase = phase;
    host.wanted = wanted;
    saw(host, later);
  }
  void saw(const SeenHost& host, std::chrono::milliseconds later = 1s) { history_.saw(host, now_ += later); }
  const ChangeHistory::Counts& counts() const { return history_.counts(); }
  SeenHost refused(bool only_in_use) const {
    SeenHost host;
    host.phase = SeenPhase::refused;
    host.accelerators = {test::gpu(policy::Mode::host, policy::Mode::passthrough, "refused")};
    host.accelerators[0].only_in_use = only_in_use;
    return host;
  }

  ChangeHistory history_;
  ChangeHistory::Clock::time_point now_;
};

TEST_F(ChangeHistoryTest, WhatCameBeforeUsIsNotCounted) {
  saw(refused(true));
  EXPECT_THAT(counts().ended, IsEmpty());
  EXPECT_THAT(counts().refusals, IsEmpty());
  EXPECT_EQ(counts().seconds, 0);
}

TEST_F(ChangeHistoryTest, AChangeIsTimedFromItsWithdrawalToItsEnd) {
  saw(SeenPhase::as_wanted);
  saw(SeenPhase::withdrawing, 10s, 8);
  saw(SeenPhase::changing, 2s, 8);
  saw(SeenPhase::as_wanted, 1s, 8);
  saw(SeenPhase::as_wanted, 5s, 8);
  EXPECT_THAT(counts().ended, UnorderedElementsAre(Pair(SeenPhase::as_wanted, 1)));
  EXPECT_DOUBLE_EQ(counts().seconds, 3);
  EXPECT_EQ(counts().by_duration.at(3), 1U);  // up to 5 s
}

TEST_F(ChangeHistoryTest, OneThatWasUnderWayAtTheStartHasNoLength) {
  saw(SeenPhase::changing);
  saw(SeenPhase::failed);
  EXPECT_THAT(counts().ended, UnorderedElementsAre(Pair(SeenPhase::failed, 1)));
  EXPECT_EQ(counts().seconds, 0);
  EXPECT_THAT(counts().by_duration, testing::Each(0));
}

TEST_F(ChangeHistoryTest, OneTooShortToBeSeenIsCounted) {
  saw(SeenPhase::as_wanted, 1s, 7);
  saw(SeenPhase::as_wanted, 1s, 8);
  saw(SeenPhase::refused, 1s, 9);
  saw(SeenPhase::refused, 1s, 9);
  EXPECT_THAT(counts().ended,
              UnorderedElementsAre(Pair(SeenPhase::as_wanted, 1), Pair(SeenPhase::refused, 1)));
}

TEST_F(ChangeHistoryTest, LongerThanEveryBoundHasItsPlace) {
  saw(SeenPhase::as_wanted);
  saw(SeenPhase::changing);
  saw(SeenPhase::as_wanted, 301s);
  EXPECT_EQ(counts().by_duration.back(), 1U);
  saw(SeenPhase::changing);
  saw(SeenPhase::as_wanted, 300s);
  EXPECT_EQ(counts().by_duration.at(8), 1U);
}

TEST_F(ChangeHistoryTest, ARefusalIsCountedOnceForEachReason) {
  saw(SeenPhase::as_wanted);
  saw(refused(true));
  saw(refused(true));
  saw(refused(false));
  saw(SeenPhase::as_wanted);
  saw(refused(true));
  EXPECT_THAT(counts().refusals,
              UnorderedElementsAre(Pair(RefusalReason::in_use, 2), Pair(RefusalReason::other, 1)));
}

}  // namespace
}  // namespace ferry::agent
