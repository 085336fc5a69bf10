// SPDX-License-Identifier: Apache-2.0
// The number of random schedules that tests of the agent run.
#pragma once

#include <cstdlib>

namespace ferry::test {

/// FERRY_SCHEDULES, or 1,000.
inline int schedules() {
  const char* const count = std::getenv("FERRY_SCHEDULES");  // NOLINT(concurrency-mt-unsafe): one thread
  return count == nullptr ? 1'000 : std::atoi(count);        // NOLINT(cert-err34-c): 0 runs none
}

/// The part of `count` schedules that this process runs: GoogleTest may divide them among several.
inline int share_of(int count) {
  const char* const shards = std::getenv("GTEST_TOTAL_SHARDS");  // NOLINT(concurrency-mt-unsafe): one thread
  const int number = shards == nullptr ? 1 : std::atoi(shards);  // NOLINT(cert-err34-c): 0 counts as 1
  return number > 1 ? count / number : count;
}

}  // namespace ferry::test
