// SPDX-License-Identifier: Apache-2.0
#include "agent/only_agent.h"

#include <chrono>
#include <utility>

#include <spdlog/spdlog.h>

#include "agent/host_files.h"

namespace ferry {
namespace {

// Between looks whether the other one has ended: a flock tells nobody.
constexpr auto kForTheOther = std::chrono::seconds(1);

}  // namespace

Result<> OnlyAgent::run(const std::stop_token& stop) {
  loop_.post([this] { try_now(); });
  loop_.run(stop);
  return begun_;
}

void OnlyAgent::try_now() {
  if (only_) return;
  auto claimed = OnlyOne::claim(host_, kAgentLock);
  if (claimed) {
    only_ = std::move(*claimed);
    begun_ = begin_();
  } else if (claimed.error().code == Errc::refused) {
    if (!std::exchange(told_, true))
      spdlog::warn("another ferry agent serves this node: waiting for its end");
    loop_.at(EventLoop::Clock::now() + kForTheOther, [this] { try_now(); });
    return;
  } else {
    begun_ = fail(std::move(claimed).error());
  }
  if (!begun_) loop_.finish();
}

}  // namespace ferry
