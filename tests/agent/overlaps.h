// SPDX-License-Identifier: Apache-2.0
// How often random schedules had which pair of events close together.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <deque>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "kube/timers.h"

namespace ferry::test {

template <std::size_t N>
class Overlaps {
 public:
  using Names = std::array<const char*, N>;
  using Recent = std::deque<std::pair<std::size_t, kube::Timers::Clock::time_point>>;

  /// Two events overlap when what the first began cannot have ended yet. `recent`: those of one schedule.
  void count(Recent& recent, std::size_t event, kube::Timers::Clock::time_point now) {
    constexpr std::chrono::seconds kClose{10};
    while (!recent.empty() && now - recent.front().second > kClose) recent.pop_front();
    for (const auto& [before, when] : recent) ++all_.at(before).at(event);
    recent.emplace_back(event, now);
  }

  /// Prints the table; with `each` every pair must have been.
  void show(const Names& names, bool each) const {
    for (std::size_t before = 0; before < N; ++before) {
      std::string line = fmt::format("{:>22}, then within 10 s:", names.at(before));
      for (std::size_t after = 0; after < N; ++after) {
        line += fmt::format(" {:>6}", all_.at(before).at(after));
        if (!each) continue;
        EXPECT_GT(all_.at(before).at(after), 0) << names.at(before) << ", then " << names.at(after);
      }
      fmt::print("{}\n", line);
    }
  }

 private:
  std::array<std::array<int, N>, N> all_{};
};

}  // namespace ferry::test
