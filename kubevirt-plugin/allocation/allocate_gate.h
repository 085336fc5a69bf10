// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <utility>

#include "common/result.h"

namespace ferry::plugin {

/// Holds Allocate calls until it is known which pods have devices. A plugin that has just started does not
/// know its predecessor's allocations. A kubelet that is still hearing of its pods does not know theirs. Any
/// thread may call.
class AllocateGate {
 public:
  /// `closed`: the reason for a refusal; nullptr: the call may pass.
  using Job = std::function<void(const Error* closed)>;
  /// The number of calls that have begun to wait so far.
  using Arrivals = std::uint64_t;

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

  /// All calls may pass from now on.
  void open() { decide(true); }
  /// Calls up to `up_to` may pass; later calls wait.
  void let_pass(Arrivals up_to) { decide(false, {}, up_to); }
  /// Refuses the waiting calls now, and each call until the next decision.
  void close(Error why) { decide(false, std::move(why)); }
  /// Calls wait from now on, until the next decision.
  void wait() { let_pass(0); }

 private:
  struct Waiting {
    Arrivals arrival = 0;
    Job job;
  };
  /// `up_to`: the last waiting call that the decision concerns; absent: all.
  void decide(bool open, const std::optional<Error>& closed = {}, std::optional<Arrivals> up_to = {}) {
    std::deque<Waiting> concerned;
    {
      const std::scoped_lock lock(mutex_);
      open_ = open;
      closed_ = closed;
      while (!waiting_.empty() && waiting_.front().arrival <= up_to.value_or(arrivals_)) {
        concerned.push_back(std::move(waiting_.front()));
        waiting_.pop_front();
      }
    }
    for (const Waiting& one : concerned) one.job(closed ? &*closed : nullptr);
  }

  mutable std::mutex mutex_;
  bool open_ = false;
  std::optional<Error> closed_;
  Arrivals arrivals_ = 0;
  std::deque<Waiting> waiting_;  // in order of arrival
  std::function<void()> waited_for_;
};

}  // namespace ferry::plugin
