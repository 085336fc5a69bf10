// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <iterator>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "common/result.h"

namespace ferry::plugin {

/// Holds Allocate calls until it is known which pods have devices. A plugin that has just started does not
/// know its predecessor's allocations. A kubelet that is still hearing of its pods does not know theirs. A
/// call that has passed may be held again until hostd has sanitized its devices. Any thread may call.
class AllocateGate {
 public:
  using Clock = std::chrono::steady_clock;
  /// `closed`: the reason for a refusal; nullptr: the call may pass.
  using Job = std::function<void(const Error* closed)>;
  /// The number of calls that have begun to wait so far.
  using Arrivals = std::uint64_t;

  /// `patience`: how long a call is held, at most.
  explicit AllocateGate(std::chrono::milliseconds patience = std::chrono::seconds(10))
      : patience_(patience) {}

  /// Each call that begins to wait calls `waited_for` afterwards, under no lock.
  void on_wait(std::function<void()> waited_for) {
    const std::scoped_lock lock(mutex_);
    waited_for_ = std::move(waited_for);
  }

  /// Runs `job` now if the gate is open or closed. Otherwise the thread that decides runs it.
  void pass(Job job) {
    std::unique_lock lock(mutex_);
    if (!open_ && !closed_) {
      waiting_.push_back({.arrival = ++arrivals_, .job = std::move(job)});
      const auto waited_for = waited_for_;
      lock.unlock();
      if (waited_for) waited_for();
      return;
    }
    const std::optional<Error> closed = closed_;
    lock.unlock();
    job(closed ? &*closed : nullptr);
  }

  /// Calls that begin to wait after this are not among them.
  Arrivals arrivals() const {
    const std::scoped_lock lock(mutex_);
    return arrivals_;
  }
  bool anybody_waits() const {
    const std::scoped_lock lock(mutex_);
    return !waiting_.empty();
  }

  /// An attempt to answer a call that has passed.
  struct Attempt {
    std::uint64_t retries = 0;  ///< the retries of held calls before it
    Clock::time_point until;    ///< the end of the call's patience
  };
  std::chrono::milliseconds patience() const { return patience_; }
  Attempt first_attempt() const { return next_attempt(Clock::now() + patience_); }
  Attempt next_attempt(Clock::time_point until) const {
    const std::scoped_lock lock(mutex_);
    return {.retries = retries_, .until = until};
  }

  /// Each call that is held calls `held` afterwards, under no lock, with the end of its patience.
  void on_hold(std::function<void(Clock::time_point until)> held) {
    const std::scoped_lock lock(mutex_);
    on_hold_ = std::move(held);
  }
  /// Holds a call after an attempt in vain. `job` runs at the next retry, or gets `late` if none has come in
  /// time. It runs now if there was a retry since the attempt began, or if the gate is closed.
  void hold(const Attempt& attempt, Error late, Job job) {
    std::unique_lock lock(mutex_);
    if (closed_ || retries_ != attempt.retries) {
      const std::optional<Error> closed = closed_;
      lock.unlock();
      return job(closed ? &*closed : nullptr);
    }
    held_.push_back({.until = attempt.until, .late = std::move(late), .job = std::move(job)});
    const auto on_hold = on_hold_;
    lock.unlock();
    if (on_hold) on_hold(attempt.until);
  }
  /// hostd's orders have changed, so each held call is tried again.
  void retry_held() {
    std::unique_lock lock(mutex_);
    ++retries_;
    const auto held = std::exchange(held_, {});
    lock.unlock();
    for (const Held& one : held) one.job(nullptr);
  }
  /// Refuses the held calls whose patience has ended by `now`.
  void refuse_held(Clock::time_point now) {
    std::vector<Held> late;
    {
      const std::scoped_lock lock(mutex_);
      const auto first =
          std::ranges::stable_partition(held_, [&](const Held& one) { return one.until > now; });
      late.assign(std::make_move_iterator(first.begin()), std::make_move_iterator(first.end()));
      held_.erase(first.begin(), first.end());
    }
    for (const Held& one : late) one.job(&one.late);
  }

  /// All calls may pass from now on.
  void open() { decide(true); }
  /// Calls up to `up_to` may pass; later calls wait.
  void let_pass(Arrivals up_to) { decide(false, {}, up_to); }
  /// Refuses the waiting and the held calls now, and each call until the next decision.
  void close(Error why) { decide(false, std::move(why)); }
  /// Calls wait from now on, until the next decision.
  void wait() { let_pass(0); }

 private:
  struct Waiting {
    Arrivals arrival = 0;
    Job job;
  };
  struct Held {
    Clock::time_point until;
    Error late;
    Job job;
  };
  /// `up_to`: the last waiting call that the decision concerns; absent: all.
  void decide(bool open, const std::optional<Error>& closed = {}, std::optional<Arrivals> up_to = {}) {
    std::deque<Waiting> concerned;
    std::vector<Held> held;
    {
      const std::scoped_lock lock(mutex_);
      open_ = open;
      closed_ = closed;
      if (closed) held = std::exchange(held_, {});
      while (!waiting_.empty() && waiting_.front().arrival <= up_to.value_or(arrivals_)) {
        concerned.push_back(std::move(waiting_.front()));
        waiting_.pop_front();
      }
    }
    for (const Waiting& one : concerned) one.job(closed ? &*closed : nullptr);
    for (const Held& one : held) one.job(&*closed);
  }

  mutable std::mutex mutex_;
  bool open_ = false;
  std::optional<Error> closed_;
  Arrivals arrivals_ = 0;
  std::deque<Waiting> waiting_;  // in order of arrival
  std::function<void()> waited_for_;
  const std::chrono::milliseconds patience_;
  std::uint64_t retries_ = 0;
  std::vector<Held> held_;
  std::function<void(Clock::time_point)> on_hold_;
};

}  // namespace ferry::plugin
