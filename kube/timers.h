// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include "common/event_loop.h"
#include "common/owned_timer.h"
#include "common/pinned.h"

namespace ferry::kube {

/// The time, and jobs at a time: from the process's loop, or from a clock that a test turns.
class Timers : Pinned {
 public:
  using Clock = EventLoop::Clock;
  using Timer = EventLoop::Timer;

  virtual ~Timers() = default;

  virtual Clock::time_point now() const = 0;
  /// Runs `job` at `when`, never within this call.
  virtual Timer at(Clock::time_point when, EventLoop::Job job) = 0;
  /// A timer that has run or was never set is no error.
  virtual void cancel(Timer timer) = 0;
};

/// Timers of a loop, which must outlive this.
class LoopTimers final : public Timers {
 public:
  explicit LoopTimers(EventLoop& loop) : loop_(loop) {}
  Clock::time_point now() const override { return Clock::now(); }
  Timer at(Clock::time_point when, EventLoop::Job job) override { return loop_.at(when, std::move(job)); }
  void cancel(Timer timer) override { loop_.cancel(timer); }

 private:
  EventLoop& loop_;
};

using OwnedTimer = OwnedTimerOf<Timers>;

}  // namespace ferry::kube
