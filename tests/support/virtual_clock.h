// SPDX-License-Identifier: Apache-2.0
// A time that passes when a test says so, and at once.
#pragma once

#include <functional>
#include <map>

#include "kube/timers.h"

namespace ferry::test {

class VirtualClock final : public kube::Timers {
 public:
  Clock::time_point now() const override { return now_; }
  Timer at(Clock::time_point when, EventLoop::Job job) override;
  void cancel(Timer timer) override { waiting_.erase(timer); }

  /// Runs all that is due until then, each at its time. More than a hundred thousand jobs at one moment are a
  /// fault of what is tested, and thrown. False: nothing was, and there is
  /// no `outside`.
  bool run_for(Clock::duration time);
  /// Until `done`, looked at after each job; false: it was not within that time.
  bool run_until(const std::function<bool()>& done, Clock::duration most);

  /// Called every so often while time passes: for what goes by no clock of ours, sockets.
  std::function<void()> outside;
  static constexpr std::chrono::milliseconds kOutside{50};

  std::size_t waiting() const { return waiting_.size(); }
  /// What a clock on the wall shows: the epoch at the beginning, and `skew` beside.
  std::chrono::system_clock::time_point wall() const;
  std::chrono::seconds skew{0};

 private:
  void run_first();
  bool run_to(Clock::time_point end);

  Clock::time_point now_{std::chrono::hours(1)};
  std::map<Timer, EventLoop::Job> waiting_;
  std::uint64_t last_timer_ = 0;
  std::size_t at_this_moment_ = 0;
};

}  // namespace ferry::test
