// SPDX-License-Identifier: Apache-2.0
// The annotation gpu-ferry.io/drain: all that is remembered of a drain (drain.h).
//
//   {"generation": 12, "since": "2026-11-21T09:30:00Z"}         pods are evicted
//   {"generation": 12, "failed": "after 600 s ..."}              no longer, and not again for that wish
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ferry {

struct DrainMark {
  using Time = std::chrono::sys_seconds;

  std::uint64_t generation = 0;  ///< of the wanted.json whose refusal it is about
  std::optional<Time> since;     ///< by the node's own clock; absent: it has failed
  std::string failed = {};       ///< why it has failed
  bool operator==(const DrainMark&) const = default;
};

std::string drain_mark_text(const DrainMark& mark);

/// Absent: not of the agent's making.
std::optional<DrainMark> read_drain_mark(std::string_view text);

}  // namespace ferry
