// SPDX-License-Identifier: Apache-2.0
// Counts of pulls (artifact_pulls.h), for Prometheus.
#pragma once

#include <cstdint>
#include <string>

#include "kata-manager/artifacts.h"

namespace ferry {

struct PullCounts {
  std::uint64_t done = 0;    ///< since the agent started
  std::uint64_t failed = 0;  ///< since the agent started; a stopped pull does not count
  std::string under_way;     ///< class of the running pull; empty: none
  FetchProgress progress;    ///< of the running pull
};

}  // namespace ferry
