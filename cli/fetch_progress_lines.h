// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "kata-manager/artifacts.h"

namespace ferry {

/// How far a fetch is, or a look at what was fetched, for people who wait: nothing where it is soon over, and
/// never line upon line.
class FetchProgressLines {
 public:
  using Clock = std::chrono::steady_clock;
  /// From now on. `name` is the class's.
  explicit FetchProgressLines(std::string name, std::function<Clock::time_point()> now = Clock::now);
  /// "kata-gpu: 12 of 340 MiB\n"; absent: one was said less than two seconds ago, or it began then.
  std::optional<std::string> line(const FetchProgress& progress);

 private:
  std::string name_;
  std::function<Clock::time_point()> now_;
  Clock::time_point told_;
};

}  // namespace ferry
