// SPDX-License-Identifier: Apache-2.0
#include "kube/backoff.h"

#include <algorithm>
#include <memory>
#include <random>
#include <utility>

namespace ferry::kube {

Random random_numbers() {
  return [generator = std::make_shared<std::mt19937_64>(std::random_device{}())] {
    return std::uniform_real_distribution<double>(0, 1)(*generator);
  };
}

Backoff::Pause Backoff::next(const Random& random, std::optional<std::chrono::seconds> asked) {
  const auto whole = std::exchange(whole_, std::min(whole_ * 2, kLongest));
  const auto drawn = part_of(whole, random);
  return asked ? drawn + std::clamp(*asked, std::chrono::seconds(0), kMostAsked) : drawn;
}

Backoff::Pause part_of(Backoff::Pause whole, const Random& random) {
  constexpr double kLeast = 0.1;
  return std::chrono::duration_cast<Backoff::Pause>(whole * (kLeast + (1 - kLeast) * random()));
}

}  // namespace ferry::kube
