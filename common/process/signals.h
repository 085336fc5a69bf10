// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <csignal>
#include <stop_token>
#include <thread>

#include "common/pinned.h"

namespace ferry {

/// Turns SIGTERM, SIGINT and SIGHUP into a stop request, SIGHUP only if the parent does not ignore it
/// (nohup). The signals are blocked for the whole process, and one thread waits for them.
class StopOnSignal : Pinned {
 public:
  StopOnSignal() {
    sigemptyset(&signals_);
    sigaddset(&signals_, SIGTERM);
    sigaddset(&signals_, SIGINT);
    struct sigaction hangup = {};
    if (::sigaction(SIGHUP, nullptr, &hangup) == 0 && hangup.sa_handler != SIG_IGN)
      sigaddset(&signals_, SIGHUP);
    ::pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
    waiter_ = std::thread([this] {
      int signal = 0;
      ::sigwait(&signals_, &signal);
      source_.request_stop();
    });
  }
  ~StopOnSignal() {
    ::pthread_kill(waiter_.native_handle(), SIGINT);  // sigwait(3) takes it, so it does not end the thread
    waiter_.join();
  }
  std::stop_token token() const { return source_.get_token(); }

 private:
  sigset_t signals_{};
  std::stop_source source_;
  std::thread waiter_;
};

/// Lets a change of the host finish in spite of signals. The first SIGINT, SIGTERM or SIGHUP is answered on
/// stderr, and the next one ends the process as usual. SIGPIPE ends nothing: if a reader of our output goes
/// away, writes to it fail.
///
/// Start other threads after this object, or end them before it. If SIGTERM is already blocked, another part
/// of the process waits for signals, and this object does nothing.
class FinishOnSignal : Pinned {
 public:
  FinishOnSignal();
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
