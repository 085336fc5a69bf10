// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "kata-manager/artifacts.h"

namespace ferry {

/// Progress of a fetch, or of a check of fetched files, as lines for people. A short wait prints nothing, and
/// a long one few lines.
class FetchProgressLines {
 public:
  using Clock = std::chrono::steady_clock;
  /// The wait begins now. `name`: the class's.
  explicit FetchProgressLines(std::string name, std::function<Clock::time_point()> now = Clock::now);
  /// "kata-gpu: 12 of 340 MiB\n"; absent: the last line or the start was less than two seconds ago.
  std::optional<std::string> line(const FetchProgress& progress);

 private:
  std::string name_;
  std::function<Clock::time_point()> now_;
  Clock::time_point told_;
};

}  // namespace ferry
