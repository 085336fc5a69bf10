// SPDX-License-Identifier: Apache-2.0
#include "dra/publish/lost_claims.h"

#include <algorithm>
#include <utility>

namespace ferry::dra {

LostClaims::LostClaims(kube::Timers& timers, Settings settings)
    : timers_(timers), settings_(std::move(settings)) {}

LostClaims::~LostClaims() {
  timers_.cancel(timer_);
}

bool LostClaims::lacks_one() const {
  return std::ranges::any_of(settings_.checkpoint().claims,
                             [this](const ClaimRecord& claim) { return !in_server_.contains(claim.uid); });
}

void LostClaims::look(std::set<std::string> in_server) {
  in_server_ = std::move(in_server);
  if (!lacks_one()) {
    if (std::exchange(waits_, false)) timers_.cancel(timer_);
    return;
  }
  if (std::exchange(waits_, true)) return;
  timer_ = timers_.at(timers_.now() + kPatience, [this] {
    waits_ = false;
    settings_.unprepare_all_but(in_server_);
    // A claim that still exists, or cannot be undone yet, is looked at again.
    look(std::set<std::string>(in_server_));
  });
}

}  // namespace ferry::dra
