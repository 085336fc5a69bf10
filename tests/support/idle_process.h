// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <csignal>
#include <sys/wait.h>
#include <unistd.h>

namespace ferry::test {

/// A process that does nothing until it is ended.
class IdleProcess {
 public:
  IdleProcess() : pid_(::fork()) {
    if (pid_ != 0) return;
    ::pause();
    ::_exit(0);
  }
  IdleProcess(const IdleProcess&) = delete;
  IdleProcess& operator=(const IdleProcess&) = delete;
  IdleProcess(IdleProcess&&) = delete;
  IdleProcess& operator=(IdleProcess&&) = delete;
  ~IdleProcess() {
    end();
    ::waitpid(pid_, nullptr, 0);
  }
  void end() const { ::kill(pid_, SIGKILL); }
  /// The same, and once it has ended; its number is not another's before this goes.
  void end_now() const {
    end();
    siginfo_t info{};
    ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT);
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_;
};

}  // namespace ferry::test
