// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <optional>

namespace ferry {

/// Numbers in [0, 1), evenly.
using Random = std::function<double()>;

/// How long to wait before the next try: a second, doubled each time up to a minute, and of that a part drawn
/// between a tenth and the whole, so that ten thousand nodes do not come back at once.
class Backoff {
 public:
  using Pause = std::chrono::milliseconds;
  static constexpr Pause kFirst{1'000};
  static constexpr Pause kLongest{60'000};
  /// A server that asks for more patience than this gets no more.
  static constexpr std::chrono::seconds kMostAsked{300};

  /// The pause after one more failure; what the server asked for comes on top, for it asks all nodes alike.
  Pause next(const Random& random, std::optional<std::chrono::seconds> asked = {});
  void reset() { whole_ = kFirst; }

 private:
  Pause whole_ = kFirst;
};

/// Between a tenth of it and the whole.
Backoff::Pause part_of(Backoff::Pause whole, const Random& random);

}  // namespace ferry
