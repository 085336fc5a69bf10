// SPDX-License-Identifier: Apache-2.0
// The annotation gpu-ferry.io/drain, which stores the whole state of a drain (drain.h).
//
//   {"generation": 12, "since": "2026-11-21T09:30:00Z"}         the drain runs
//   {"generation": 12, "failed": "after 600 s ..."}              it has failed for that desired state
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ferry::agent {

struct DrainMark {
  using Time = std::chrono::sys_seconds;

  std::uint64_t generation = 0;  ///< of the desired.json that hostd refused
  std::optional<Time> since;     ///< start, by the node's clock; absent: the drain has failed
  std::string failed = {};       ///< reason of the failure
  bool operator==(const DrainMark&) const = default;
};

std::string drain_mark_text(const DrainMark& mark);

/// Time since the drain's start, by the node's clock, which may have been set back since. 0: it has failed.
std::chrono::seconds drain_time(const DrainMark& mark, std::chrono::system_clock::time_point now);

/// Absent: the annotation was not written by the agent.
std::optional<DrainMark> read_drain_mark(std::string_view text);

}  // namespace ferry::agent
