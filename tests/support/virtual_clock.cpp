// SPDX-License-Identifier: Apache-2.0
#include "tests/support/virtual_clock.h"

#include <algorithm>
#include <stdexcept>

namespace ferry::test {

kube::Timers::Timer VirtualClock::at(Clock::time_point when, EventLoop::Job job) {
  const Timer timer(std::max(when, now_), ++last_timer_);
  waiting_.emplace(timer, std::move(job));
  return timer;
}

void VirtualClock::run_first() {
  constexpr std::size_t kMost = 100'000;
  auto first = waiting_.extract(waiting_.begin());
  at_this_moment_ = first.key().first == now_ ? at_this_moment_ + 1 : 0;
  if (at_this_moment_ > kMost) throw std::runtime_error("time stands still: jobs without end at one moment");
  now_ = first.key().first;
  first.mapped()();
}

bool VirtualClock::run_for(Clock::duration time) {
  const auto end = now_ + time;
  bool any = false;
  while (outside && now_ < end) {
    run_to(std::min<Clock::time_point>(now_ + kOutside, end));
    outside();
    any = true;
  }
  return run_to(end) || any;
}

bool VirtualClock::run_to(Clock::time_point end) {
  bool any = false;
  for (; !waiting_.empty() && waiting_.begin()->first.first <= end; any = true) run_first();
  now_ = end;
  return any;
}

bool VirtualClock::run_until(const std::function<bool()>& done, Clock::duration most) {
  const auto end = now_ + most;
  while (!done()) {
    if (waiting_.empty() || waiting_.begin()->first.first > end) {
      now_ = end;
      return false;
    }
    run_first();
  }
  return true;
}

std::chrono::system_clock::time_point VirtualClock::wall() const {
  return std::chrono::system_clock::time_point{} + skew +
         std::chrono::duration_cast<std::chrono::system_clock::duration>(now_.time_since_epoch());
}

}  // namespace ferry::test
