// SPDX-License-Identifier: Apache-2.0
#include "agent/metrics/change_history.h"

#include <chrono>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/agent/snapshots.h"

namespace ferry::agent {
namespace {

using namespace std::chrono_literals;
using testing::IsEmpty;
using testing::Pair;
using testing::UnorderedElementsAre;

class ChangeHistoryTest : public testing::Test {
 protected:
  void saw(api::NodePhase phase, std::chrono::milliseconds later = 1s, std::uint64_t desired = 7) {
    api::HostStatus host;
    host.phase = phase;
    host.desired = api::DesiredMark{.generation = desired};
    saw(host, later);
  }
  void saw(const api::HostStatus& host, std::chrono::milliseconds later = 1s) {
    history_.saw(host, now_ += later);
  }
  const ChangeHistory::Counts& counts() const { return history_.counts(); }
  api::HostStatus refused(bool only_in_use) const {
    api::HostStatus host;
    host.phase = api::NodePhase::blocked;
    host.accelerators = {test::gpu(policy::Mode::host, policy::Mode::passthrough, api::GpuState::blocked)};
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
  saw(api::NodePhase::ready);
  saw(api::NodePhase::applying, 10s, 8);
  saw(api::NodePhase::applying, 2s, 8);
  saw(api::NodePhase::ready, 1s, 8);
  saw(api::NodePhase::ready, 5s, 8);
  EXPECT_THAT(counts().ended, UnorderedElementsAre(Pair(api::NodePhase::ready, 1)));
  EXPECT_DOUBLE_EQ(counts().seconds, 3);
  EXPECT_EQ(counts().by_duration.at(3), 1U);  // up to 5 s
}

TEST_F(ChangeHistoryTest, OneThatWasUnderWayAtTheStartHasNoLength) {
  saw(api::NodePhase::applying);
  saw(api::NodePhase::failed);
  EXPECT_THAT(counts().ended, UnorderedElementsAre(Pair(api::NodePhase::failed, 1)));
  EXPECT_EQ(counts().seconds, 0);
  EXPECT_THAT(counts().by_duration, testing::Each(0));
}

TEST_F(ChangeHistoryTest, OneTooShortToBeSeenIsCounted) {
  saw(api::NodePhase::ready, 1s, 7);
  saw(api::NodePhase::ready, 1s, 8);
  saw(api::NodePhase::blocked, 1s, 9);
  saw(api::NodePhase::blocked, 1s, 9);
  EXPECT_THAT(counts().ended,
              UnorderedElementsAre(Pair(api::NodePhase::ready, 1), Pair(api::NodePhase::blocked, 1)));
}

TEST_F(ChangeHistoryTest, LongerThanEveryBoundHasItsPlace) {
  saw(api::NodePhase::ready);
  saw(api::NodePhase::applying);
  saw(api::NodePhase::ready, 301s);
  EXPECT_EQ(counts().by_duration.back(), 1U);
  saw(api::NodePhase::applying);
  saw(api::NodePhase::ready, 300s);
  EXPECT_EQ(counts().by_duration.at(8), 1U);
}

TEST_F(ChangeHistoryTest, ARefusalIsCountedOnceForEachReason) {
  saw(api::NodePhase::ready);
  saw(refused(true));
  saw(refused(true));
  saw(refused(false));
  saw(api::NodePhase::ready);
  saw(refused(true));
  EXPECT_THAT(counts().refusals, UnorderedElementsAre(Pair("in_use", 2), Pair("other", 1)));
}

}  // namespace
}  // namespace ferry::agent
