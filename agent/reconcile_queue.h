// SPDX-License-Identifier: Apache-2.0
// The times of the agent's reconciles. Only one thread may use it.
#pragma once

#include <functional>
#include <utility>

#include <spdlog/spdlog.h>

#include "agent/node_refusals.h"
#include "common/event_loop.h"
#include "common/result.h"
#include "kube/backoff.h"
#include "kube/timers.h"

namespace ferry::agent {

class ReconcileQueue {
 public:
  /// `reconcile` is never called from within a call of this object. `timers` must outlive it.
  ReconcileQueue(kube::Timers& timers, kube::Random random, EventLoop::Job reconcile)
      : timers_(timers),
        random_(std::move(random)),
        reconcile_(std::move(reconcile)),
        soon_(timers),
        later_(timers) {}

  /// Reconciles soon, once for all events until then.
  void schedule() {
    if (std::exchange(scheduled_, true)) return;
    soon_.set(timers_.now(), [this] {
      scheduled_ = false;
      reconcile_();
    });
  }
  /// The same, as a function for those that observe the cluster.
  std::function<void()> scheduler() {
    return [this] { schedule(); };
  }

  /// Reconciles at `when`, instead of the last such time.
  void requeue(Moment when) { later_.set(when, scheduler()); }
  /// Logs the error of an action, and reconciles after a pause that grows until forget().
  void retry(const Error& error) {
    spdlog::error("{}", error.text());
    requeue(timers_.now() + backoff_.next(random_));
  }
  /// Call this when all actions have succeeded. Resets the back-off and cancels requeue().
  void forget() {
    backoff_.reset();
    later_.cancel();
  }

 private:
  kube::Timers& timers_;
  const kube::Random random_;
  const EventLoop::Job reconcile_;
  bool scheduled_ = false;
  kube::Backoff backoff_;
  kube::OwnedTimer soon_;
  kube::OwnedTimer later_;
};

}  // namespace ferry::agent
