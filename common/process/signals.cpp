// SPDX-License-Identifier: Apache-2.0
#include "common/process/signals.h"

#include <system_error>
#include <unistd.h>

#include "common/process/standard_streams.h"

namespace ferry {
namespace {

sigset_t only(int signal) {
  sigset_t out;
  sigemptyset(&out);
  sigaddset(&out, signal);
  return out;
}

}  // namespace

FinishOnSignal::FinishOnSignal() {
  ::pthread_sigmask(SIG_BLOCK, nullptr, &before_);
  if (sigismember(&before_, SIGTERM) == 1) return;
  sigemptyset(&awaited_);
  sigaddset(&awaited_, SIGTERM);
  for (const int signal : {SIGINT, SIGHUP}) {
    struct sigaction action = {};
    // A signal that the parent ignores (nohup, a shell's background job) stays ignored.
    if (::sigaction(signal, nullptr, &action) == 0 && action.sa_handler != SIG_IGN)
      sigaddset(&awaited_, signal);
  }
  sigset_t blocked = awaited_;
  sigaddset(&blocked, SIGPIPE);
  ::pthread_sigmask(SIG_BLOCK, &blocked, nullptr);
  try {
    waiter_ = std::thread([this] { wait(); });
  } catch (const std::system_error&) {
    // Without a thread, signals stay pending until the change is done.
  }
}

FinishOnSignal::~FinishOnSignal() {
  if (waiter_.joinable()) {
    over_ = true;
    // The waiter takes SIGTERM by sigwait(3), so the signal does not end the thread.
    // NOLINTNEXTLINE(bugprone-bad-signal-to-kill-thread,cert-pos44-c)
    ::pthread_kill(waiter_.native_handle(), SIGTERM);
    waiter_.join();
  }
  // Discards a pending SIGPIPE: the failed write has already been reported.
  if (sigismember(&before_, SIGPIPE) == 0) {
    const sigset_t pipe = only(SIGPIPE);
    constexpr timespec kNow{};
    (void)::sigtimedwait(&pipe, nullptr, &kNow);
  }
  ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

void FinishOnSignal::wait() const {
  int signal = 0;
  ::sigwait(&awaited_, &signal);
  if (over_) return;
  // A text that would block is skipped, so that the second signal is still received.
  say_to_stderr_if_it_is_taken(
      "ferry: finishing what has begun; once more stops at once and leaves it as it is then\n");
  ::sigwait(&awaited_, &signal);
  if (over_) return;

  const sigset_t its = only(signal);
  (void)std::signal(signal, SIG_DFL);
  ::pthread_sigmask(SIG_UNBLOCK, &its, nullptr);
  (void)std::raise(signal);
  constexpr int kSignalled = 128;
  ::_exit(kSignalled + signal);  // PID 1 of a container survives the signal
}

}  // namespace ferry
