// SPDX-License-Identifier: Apache-2.0
#include "tests/kata-manager/killed_at.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <fcntl.h>
#include <stdexcept>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace ferry::test {
namespace {

constexpr auto kChanges =
    std::to_array<long>({SYS_pwrite64, SYS_ftruncate, SYS_fchmod, SYS_fchown, SYS_mkdirat, SYS_unlinkat,
                         SYS_linkat, SYS_symlinkat, SYS_renameat, SYS_renameat2, SYS_fsync, SYS_syncfs,
#ifdef SYS_rename  // arm64 has only those that take a folder
                         SYS_rename, SYS_rmdir
#endif
    });

bool is_change(pid_t child) {
  __ptrace_syscall_info info{};
  if (::ptrace(PTRACE_GET_SYSCALL_INFO, child, sizeof(info), &info) <= 0) return false;
  if (info.op != PTRACE_SYSCALL_INFO_ENTRY) return false;
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-union-access): the kernel's own type; `op` says which it is
  const auto number = static_cast<long>(info.entry.nr);
  return std::ranges::find(kChanges, number) != kChanges.end();
}

}  // namespace

bool killed_at(unsigned change, const std::function<void()>& job) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) ::_exit(1);
    (void)::raise(SIGSTOP);
    job();
    ::_exit(0);
  }
  int status = 0;
  if (child < 0 || ::waitpid(child, &status, 0) != child || !WIFSTOPPED(status))
    throw std::runtime_error("a child cannot be traced");
  ::ptrace(PTRACE_SETOPTIONS, child, nullptr, PTRACE_O_TRACESYSGOOD);
  unsigned seen = 0;
  for (int deliver = 0;;) {
    ::ptrace(PTRACE_SYSCALL, child, nullptr, deliver);
    if (::waitpid(child, &status, 0) != child) throw std::runtime_error("the child is lost");
    if (WIFEXITED(status)) return false;
    if (WIFSIGNALED(status)) throw std::runtime_error("the child ended by itself");
    const int signal = WSTOPSIG(status);
    constexpr int kSyscallMark = 0x80;
    deliver = (signal & kSyscallMark) != 0 || signal == SIGTRAP ? 0 : signal;
    if ((signal & kSyscallMark) == 0 || !is_change(child) || ++seen < change) continue;
    ::kill(child, SIGKILL);
    ::waitpid(child, &status, 0);
    return true;
  }
}

}  // namespace ferry::test
