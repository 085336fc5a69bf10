// SPDX-License-Identifier: Apache-2.0
// What has come of pulls (artifact_pulls.h), for Prometheus.
#pragma once

#include <cstdint>
#include <string>

#include "kata-manager/artifacts.h"

namespace ferry {

struct PullCounts {
  std::uint64_t done = 0;    ///< since the agent started
  std::uint64_t failed = 0;  ///< likewise; one that was stopped is neither
  std::string under_way;     ///< the class; empty: none is
  FetchProgress progress;    ///< of that
};

}  // namespace ferry
