// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <csignal>
#include <thread>

namespace ferry {

/// Lets a change of the host finish in spite of signals. The first SIGINT, SIGTERM or SIGHUP is answered on
/// stderr, and the next one ends the process as usual. SIGPIPE ends nothing: if a reader of our output goes
/// away, writes to it fail.
///
/// Start other threads after this object, or end them before it. If SIGTERM is already blocked, another part
/// of the process waits for signals, and this object does nothing.
class FinishOnSignal {
 public:
  FinishOnSignal();
  FinishOnSignal(const FinishOnSignal&) = delete;
  FinishOnSignal& operator=(const FinishOnSignal&) = delete;
  FinishOnSignal(FinishOnSignal&&) = delete;
  FinishOnSignal& operator=(FinishOnSignal&&) = delete;
  /// Restores the signal mask. A signal that was answered has no further effect.
  ~FinishOnSignal();

 private:
  void wait() const;

  sigset_t awaited_{};
  sigset_t before_{};
  std::atomic<bool> over_ = false;
  std::thread waiter_;
};

}  // namespace ferry
