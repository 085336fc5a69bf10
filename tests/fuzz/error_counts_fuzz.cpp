// SPDX-License-Identifier: Apache-2.0
#include "agent/metrics/gpu_facts.h"
#include "tests/fuzz/fuzz.h"

// What the kernel writes into aer_dev_*, and into current_link_speed.
void ferry::fuzz::one_input(std::string_view text) {
  const agent::ErrorCounts counts = agent::parse_error_counts(text);
  require(counts.counts.size() <= 32, "there are no more kinds than a kernel has");
  for (const auto& [kind, count] : counts.counts) {
    require(!kind.empty() && kind.size() <= 32, "a kind has a short name");
    for (const char c : kind) require(c >= ' ' && c <= '~', "that can be printed");
  }
  if (const auto speed = agent::parse_link_speed(text))
    require(*speed > 0 && *speed < 1e15, "a speed is a number");
}
