// SPDX-License-Identifier: Apache-2.0
// Counts hostd's changes with their results and durations, and its refusals, from one status.json to the
// next. Pure; the time is a parameter.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string_view>

#include "api/host_status.h"

namespace ferry::agent {

// Reasons of a refusal, as values of a metric's label: there are few of them.
/// Only device users keep the accelerator from its change.
inline constexpr std::string_view kInUse = "in_use";
/// There is another reason, alone or beside device users.
inline constexpr std::string_view kAnotherReason = "other";
std::string_view refusal_reason(const api::AcceleratorStatus& refused);

class ChangeHistory {
 public:
  using Clock = std::chrono::steady_clock;

  /// Upper bounds in seconds. Withdrawing takes up to 30 s, a write that hangs takes minutes.
  static constexpr std::array<double, 9> kBounds = {0.1, 0.5, 1, 5, 10, 30, 60, 120, 300};

  struct Counts {
    std::map<api::NodePhase, std::uint64_t> ended;                ///< by the phase at the end
    std::array<std::uint64_t, kBounds.size() + 1> by_duration{};  ///< the last: longer than all bounds
    double seconds = 0;                                           ///< total of all timed changes
    std::map<std::string_view, std::uint64_t> refusals;           ///< accelerators that became refused
  };

  /// Call this with each new status.json. The first call counts nothing: that state is older than the
  /// agent.
  void saw(const api::HostStatus& host, Clock::time_point now);

  const Counts& counts() const { return counts_; }

 private:
  struct Before {
    api::NodePhase phase = api::NodePhase::idle;
    std::optional<std::uint64_t> desired;
    std::map<vfio::PciAddress, std::string_view> refused;
  };

  std::optional<Before> before_;
  std::optional<Clock::time_point> begun_;  ///< when the running change was first seen; absent: none runs
  Counts counts_;
};

}  // namespace ferry::agent
