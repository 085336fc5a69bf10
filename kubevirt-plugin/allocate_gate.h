// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "common/result.h"

namespace ferry {

/// Where Allocate calls wait until it is known who holds what: a process that has just started does not know
/// what its predecessor gave out. Any thread may call.
class AllocateGate {
 public:
  /// `closed`: why it may not go on; nullptr: it may.
  using Job = std::function<void(const Error* closed)>;

  /// Runs `job` now where that is known, or known not to be known; else when it is, on the thread that says
  /// so.
  void pass(Job job) {
    std::optional<Error> closed;
    {
      const std::scoped_lock lock(mutex_);
      if (!open_ && !closed_) return waiting_.push_back(std::move(job));
      if (!open_) closed = closed_;
    }
    job(closed ? &*closed : nullptr);
  }
  /// Everybody may pass from now on.
  void open() { decide(true, std::nullopt); }
  /// Nobody may, until it is opened: those who wait are told now.
  void close(Error why) { decide(false, std::move(why)); }
  /// It is to be found out anew: they wait from now on.
  void wait() {
    const std::scoped_lock lock(mutex_);
    open_ = false;
    closed_.reset();
  }

 private:
  void decide(bool open, std::optional<Error> closed) {
    std::vector<Job> waiting;
    {
      const std::scoped_lock lock(mutex_);
      open_ = open;
      closed_ = closed;
      waiting.swap(waiting_);
    }
    for (const Job& job : waiting) job(closed ? &*closed : nullptr);
  }

  std::mutex mutex_;
  bool open_ = false;
  std::optional<Error> closed_;
  std::vector<Job> waiting_;
};

}  // namespace ferry
