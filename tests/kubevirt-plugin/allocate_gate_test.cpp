// SPDX-License-Identifier: Apache-2.0
#include "kubevirt-plugin/allocation/allocate_gate.h"

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>

namespace ferry::plugin {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class AllocateGateTest : public testing::Test {
 protected:
  void come(const std::string& name) {
    gate.pass([this, name](const Error* closed) {
      answers.push_back(closed == nullptr ? name : name + ": " + closed->message);
    });
  }
  static Error error(const std::string& message) {
    return {.code = make_error_code(Errc::unreachable), .message = message, .hint = {}};
  }

  /// A call that has passed, and whose attempt was in vain.
  void hold(const std::string& name, const AllocateGate::Attempt& attempt) {
    gate.hold(attempt, error("late"), [this, name](const Error* why) {
      answers.push_back(why == nullptr ? name : name + ": " + why->message);
    });
  }

  AllocateGate gate;
  std::vector<std::string> answers;
};

TEST_F(AllocateGateTest, LetsPassWhoHadComeByTheTimeOfAsking) {
  come("one");
  come("two");
  const auto asked_for = gate.arrivals();
  come("three");
  EXPECT_THAT(answers, IsEmpty());
  gate.let_pass(asked_for);
  EXPECT_THAT(answers, ElementsAre("one", "two"));
  EXPECT_TRUE(gate.anybody_waits());
  come("four");
  gate.let_pass(gate.arrivals());
  EXPECT_THAT(answers, ElementsAre("one", "two", "three", "four"));
  EXPECT_FALSE(gate.anybody_waits());
}

TEST_F(AllocateGateTest, IsOpenForEverybodyUntilItIsToBeFoundOutAnew) {
  come("one");
  gate.open();
  come("two");
  EXPECT_THAT(answers, ElementsAre("one", "two"));
  gate.wait();
  come("three");
  EXPECT_THAT(answers, ElementsAre("one", "two"));
}

TEST_F(AllocateGateTest, AnswersWhyItIsClosedUntilACallMayPass) {
  come("one");
  gate.close(error("nobody knows"));
  come("two");
  EXPECT_THAT(answers, ElementsAre("one: nobody knows", "two: nobody knows"));
  gate.let_pass(gate.arrivals());
  come("three");
  EXPECT_TRUE(gate.anybody_waits());
}

TEST_F(AllocateGateTest, HoldsACallUntilTheNextRetry) {
  gate.open();
  hold("one", gate.first_attempt());
  gate.wait();
  gate.open();
  EXPECT_THAT(answers, IsEmpty());
  EXPECT_FALSE(gate.anybody_waits()) << "no answer of the kubelet's helps it";
  gate.retry_held();
  EXPECT_THAT(answers, ElementsAre("one"));
  gate.retry_held();
  EXPECT_THAT(answers, ElementsAre("one"));
}

// The orders may change between the attempt and its end.
TEST_F(AllocateGateTest, HoldsNoCallWhoseAttemptIsOlderThanARetry) {
  gate.open();
  const auto attempt = gate.first_attempt();
  gate.retry_held();
  hold("one", attempt);
  EXPECT_THAT(answers, ElementsAre("one"));
  hold("two", gate.next_attempt(attempt.until));
  EXPECT_THAT(answers, ElementsAre("one"));
}

TEST_F(AllocateGateTest, RefusesHeldCallsWhosePatienceHasEnded) {
  std::vector<AllocateGate::Clock::time_point> ends;
  gate.on_hold([&](auto until) { ends.push_back(until); });
  gate.open();
  auto attempt = gate.first_attempt();
  hold("one", attempt);
  const auto first = attempt.until;
  attempt.until += std::chrono::seconds(1);
  hold("two", attempt);
  hold("three", {.retries = 0, .until = first});
  EXPECT_THAT(ends, ElementsAre(first, attempt.until, first));
  gate.refuse_held(first);
  EXPECT_THAT(answers, ElementsAre("one: late", "three: late"));
  gate.refuse_held(attempt.until);
  EXPECT_THAT(answers, ElementsAre("one: late", "three: late", "two: late"));
}

TEST_F(AllocateGateTest, RefusesHeldCallsWhenItCloses) {
  gate.open();
  hold("one", gate.first_attempt());
  gate.close(error("ending"));
  hold("two", gate.first_attempt());
  EXPECT_THAT(answers, ElementsAre("one: ending", "two: ending"));
}

TEST_F(AllocateGateTest, CallsForWhoBeginsToWaitAndForNobodyElse) {
  int calls = 0;
  gate.on_wait([&] {
    ++calls;
    EXPECT_TRUE(gate.anybody_waits());
  });
  come("one");
  come("two");
  EXPECT_EQ(calls, 2);
  gate.open();
  come("three");
  gate.close(error("over"));
  come("four");
  EXPECT_EQ(calls, 2);
}

// As the plugin has it: one thread brings requests, another one asks and says who may pass.
TEST_F(AllocateGateTest, ForgetsNobodyAndLetsNobodyPassUnasked) {
  constexpr int kRequests = 2000;
  std::atomic<int> asked = 0;  // who had come when it was asked last
  std::atomic<int> passed = 0;
  std::atomic<bool> too_early = false;
  std::jthread brings([&] {
    for (int i = 1; i <= kRequests; ++i) {
      gate.pass([&, i](const Error* /*closed*/) {
        if (asked < i) too_early = true;
        ++passed;
      });
    }
  });
  while (passed < kRequests) {
    const auto arrivals = gate.arrivals();
    asked = static_cast<int>(arrivals);
    gate.let_pass(arrivals);
  }
  EXPECT_FALSE(too_early);
}

}  // namespace
}  // namespace ferry::plugin
