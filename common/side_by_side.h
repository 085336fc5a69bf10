// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <system_error>
#include <thread>
#include <vector>

namespace ferry {

inline constexpr std::size_t kMostSideBySide = 16;

/// Calls job(0) to job(count - 1), several at a time, and returns once all have returned: for work that
/// mostly waits for drivers. `job` must not throw.
template <typename Job>
void side_by_side(std::size_t count, const Job& job) {
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    for (std::size_t i = next++; i < count; i = next++) job(i);
  };
  std::vector<std::jthread> threads;
  try {
    while (threads.size() + 1 < std::min(count, kMostSideBySide)) threads.emplace_back(work);
  } catch (const std::system_error&) {
    // No more threads can be started: the existing ones do all jobs.
  }
  work();
}

}  // namespace ferry
