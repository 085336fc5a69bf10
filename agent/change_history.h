// SPDX-License-Identifier: Apache-2.0
// How often hostd has changed its node, with what result and for how long, and what it refused: counted from
// one state.json to the next. Pure; time is handed in.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "agent/seen_host.h"

namespace ferry {

/// Why an accelerator is refused, in words that do not multiply.
enum class RefusalReason {
  in_use,  ///< nothing but its holders stands in the way
  other,   ///< it cannot be moved whole, or not only for its holders
};
std::string_view text(RefusalReason reason);
RefusalReason refusal_reason(const SeenAccelerator& refused);

class ChangeHistory {
 public:
  using Clock = std::chrono::steady_clock;

  /// Upper bounds in seconds. Withdrawing takes up to 30 s, a write that hangs minutes.
  static constexpr std::array<double, 9> kBounds = {0.1, 0.5, 1, 5, 10, 30, 60, 120, 300};

  struct Counts {
    std::map<SeenPhase, std::uint64_t>
        ended;  ///< what came of it: as_wanted, refused, failed, nothing_wanted
    std::array<std::uint64_t, kBounds.size() + 1> by_duration{};  ///< the last: longer than all bounds
    double seconds = 0;                                           ///< of all of those
    std::map<RefusalReason, std::uint64_t> refusals;              ///< accelerators that became refused
  };

  /// hostd says this now. What is there at the first time counts as nothing: it came before us.
  void saw(const SeenHost& host, Clock::time_point now);

  const Counts& counts() const { return counts_; }

 private:
  struct Before {
    SeenPhase phase = SeenPhase::nothing_wanted;
    std::optional<std::uint64_t> wanted;
    std::map<std::string, RefusalReason> refused;  ///< by address
  };

  std::optional<Before> before_;
  std::optional<Clock::time_point> begun_;  ///< the change that is under way was seen to begin then
  Counts counts_;
};

}  // namespace ferry
