// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <csignal>
#include <thread>

namespace ferry {

/// A change of the host that has begun is ended, whoever loses patience or the terminal: the first SIGINT,
/// SIGTERM or SIGHUP is answered on stderr, the next one ends the process as it would have without this. A
/// reader of our output that goes away (SIGPIPE) ends nothing: what is written to it then fails.
///
/// Threads of the process have to be started after this, or to have ended. Where SIGTERM is blocked already,
/// somebody else waits for these signals, and this does nothing.
class FinishOnSignal {
 public:
  FinishOnSignal();
  FinishOnSignal(const FinishOnSignal&) = delete;
  FinishOnSignal& operator=(const FinishOnSignal&) = delete;
  FinishOnSignal(FinishOnSignal&&) = delete;
  FinishOnSignal& operator=(FinishOnSignal&&) = delete;
  /// Signals are as they were. One that has been answered has no more effect.
  ~FinishOnSignal();

 private:
  void wait() const;

  sigset_t awaited_{};
  sigset_t before_{};
  std::atomic<bool> over_ = false;
  std::thread waiter_;
};

}  // namespace ferry
