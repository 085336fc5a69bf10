// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <utility>

#include "common/result.h"

namespace ferry {

/// Where Allocate calls wait until it is known who holds what: a process that has just started does not know
/// what its predecessor gave out, nor what a kubelet that is still hearing of its pods will find that they
/// have. Any thread may call.
class AllocateGate {
 public:
  /// `closed`: why it may not go on; nullptr: it may.
  using Job = std::function<void(const Error* closed)>;
  /// How many have begun to wait so far.
  using Arrivals = std::uint64_t;

  /// `waited_for` is called, under no lock, by each that begins to wait, once it does.
  void on_wait(std::function<void()> waited_for) {
    const std::scoped_lock lock(mutex_);
    waited_for_ = std::move(waited_for);
  }

  /// Runs `job` now where everybody may pass, or nobody; else when that is said of it, on the thread that
  /// says so.
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

  /// Who begins to wait after this is not among them.
  Arrivals arrivals() const {
    const std::scoped_lock lock(mutex_);
    return arrivals_;
  }
  bool anybody_waits() const {
    const std::scoped_lock lock(mutex_);
    return !waiting_.empty();
  }

  /// Everybody may pass from now on.
  void open() { decide({.open = true, .closed = {}, .up_to = {}}); }
  /// These may, and nobody else yet: whoever comes from now on waits.
  void let_pass(Arrivals up_to) { decide({.open = false, .closed = {}, .up_to = up_to}); }
  /// Nobody may, until it is said otherwise: those who wait are told now.
  void close(Error why) { decide({.open = false, .closed = std::move(why), .up_to = {}}); }
  /// It is to be found out anew: they wait from now on.
  void wait() { let_pass(0); }

 private:
  struct Waiting {
    Arrivals arrival = 0;
    Job job;
  };
  struct Decision {
    bool open = false;
    std::optional<Error> closed;
    std::optional<Arrivals> up_to;  // whom it concerns of those who wait; absent: all
  };

  void decide(Decision decision) {
    std::deque<Waiting> concerned;
    {
      const std::scoped_lock lock(mutex_);
      open_ = decision.open;
      closed_ = decision.closed;
      while (!waiting_.empty() && waiting_.front().arrival <= decision.up_to.value_or(arrivals_)) {
        concerned.push_back(std::move(waiting_.front()));
        waiting_.pop_front();
      }
    }
    for (const Waiting& one : concerned) one.job(decision.closed ? &*decision.closed : nullptr);
  }

  mutable std::mutex mutex_;
  bool open_ = false;
  std::optional<Error> closed_;
  Arrivals arrivals_ = 0;
  std::deque<Waiting> waiting_;  // in the order in which they came
  std::function<void()> waited_for_;
};

}  // namespace ferry
