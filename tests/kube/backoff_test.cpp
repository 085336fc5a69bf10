// SPDX-License-Identifier: Apache-2.0
#include "kube/backoff.h"

#include <vector>

#include <gmock/gmock.h>

namespace {

using namespace ferry;
using namespace std::chrono_literals;
using testing::ElementsAre;

std::vector<kube::Backoff::Pause> pauses(double drawn) {
  kube::Backoff backoff;
  std::vector<kube::Backoff::Pause> out;
  for (int i = 0; i < 9; ++i) out.push_back(backoff.next([drawn] { return drawn; }));
  return out;
}

TEST(Backoff, DoublesFromASecondToAMinute) {
  EXPECT_THAT(pauses(1), ElementsAre(1s, 2s, 4s, 8s, 16s, 32s, 60s, 60s, 60s));
}

TEST(Backoff, DrawsNeverLessThanATenth) {
  EXPECT_THAT(pauses(0), ElementsAre(100ms, 200ms, 400ms, 800ms, 1'600ms, 3'200ms, 6s, 6s, 6s));
}

TEST(Backoff, BeginsAnewWhenSomethingWorked) {
  kube::Backoff backoff;
  const kube::Random whole = [] { return 1.0; };
  backoff.next(whole);
  backoff.next(whole);
  backoff.reset();
  EXPECT_EQ(backoff.next(whole), 1s);
}

TEST(Backoff, WaitsAsLongAsItIsAskedToWithinReason) {
  const kube::Random least = [] { return 0.0; };
  EXPECT_EQ(kube::Backoff().next(least, 7s), 7'100ms);
  EXPECT_EQ(kube::Backoff().next(least, 0s), 100ms);
  EXPECT_EQ(kube::Backoff().next(least, -5s), 100ms);
  EXPECT_EQ(kube::Backoff().next(least, 86'400s), 300'100ms);
}

}  // namespace
