// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <optional>

namespace ferry::kube {

/// Random numbers in [0, 1), evenly.
using Random = std::function<double()>;
/// Numbers of a generator with a seed of its own, which all copies share. Only one thread may use it.
Random random_numbers();

/// The pause before the next try: a second, doubled each time up to a minute. A random part of it between a
/// tenth and the whole is used, so that ten thousand nodes do not return at once.
class Backoff {
 public:
  using Pause = std::chrono::milliseconds;
  static constexpr Pause kFirst{1'000};
  static constexpr Pause kLongest{60'000};
  /// The most that a server may ask for; more is cut.
  static constexpr std::chrono::seconds kMostAsked{300};

  /// The pause after one more failure. The pause that the server asks for comes on top: it asks all nodes
  /// alike.
  Pause next(const Random& random, std::optional<std::chrono::seconds> asked = {});
  void reset() { whole_ = kFirst; }

 private:
  Pause whole_ = kFirst;
};

/// A random part of `whole`, between a tenth and all of it.
Backoff::Pause part_of(Backoff::Pause whole, const Random& random);

}  // namespace ferry::kube
