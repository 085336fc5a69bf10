// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include "common/event_loop.h"
#include "common/pinned.h"

namespace ferry {

/// A timer that ends with its owner. `Timers`: a class with at() and cancel() like those of EventLoop; the
/// object must outlive this.
template <typename Timers>
class OwnedTimerOf : Pinned {
 public:
  explicit OwnedTimerOf(Timers& timers) : timers_(timers) {}
  ~OwnedTimerOf() { cancel(); }

  /// Runs `job` at `when`, instead of the last such job. `job` may destroy this.
  void set(EventLoop::Clock::time_point when, EventLoop::Job job) {
    cancel();
    is_set_ = true;
    timer_ = timers_.at(when, [this, job = std::move(job)] {
      is_set_ = false;
      job();
    });
  }
  void cancel() {
    if (std::exchange(is_set_, false)) timers_.cancel(timer_);
  }
  /// True: a job waits. False while it runs.
  bool is_set() const { return is_set_; }

 private:
  Timers& timers_;
  EventLoop::Timer timer_;
  bool is_set_ = false;
};

using OwnedTimer = OwnedTimerOf<EventLoop>;

}  // namespace ferry
