// SPDX-License-Identifier: Apache-2.0
#include "host/own_scope.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <string>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "common/unique_fd.h"
#include "host/process_facts.h"
#include "host/systemd_services.h"

namespace ferry {
namespace {

constexpr int kKilled = 128;  // as in a shell

// Moves a process into a scope. `process` is its number in the PID namespace of the host's systemd and /proc.
Result<> enclose(const HostFs& host, pid_t process) {
  if (process == 0) return fail(Errc::failed, "nobody says which process of the host's this is");
  const std::string unit = fmt::format("ferry-hostd-{}.scope", process);
  if (auto started = SystemdServices(host).start_scope(unit, process); !started) return started;
  const auto group = host.read_file(fmt::format("proc/{}/cgroup", process));
  if (!group) return fail(Error(group.error()));
  if (group->find(unit) != std::string::npos) return {};
  return fail(Errc::failed, "systemd says that it is done, and /proc has another control group");
}

// `signals` must be blocked before the child is forked, so that none is missed.
int outlive(pid_t child, const sigset_t& signals) {
  for (;;) {
    int status = 0;
    const pid_t ended = ::waitpid(child, &status, WNOHANG);
    if (ended == child) return WIFEXITED(status) ? WEXITSTATUS(status) : kKilled + WTERMSIG(status);
    int signal = 0;
    if (::sigwait(&signals, &signal) == 0 && signal != SIGCHLD) ::kill(child, signal);
  }
}

int do_as_child(const HostFs& host, pid_t parent, const sigset_t& before, UniqueFd talk,
                const std::function<int()>& work) {
  // The parent may have died before prctl() took effect.
  if (::prctl(PR_SET_PDEATHSIG, SIGTERM) != 0 || ::getppid() != parent) return kKilled + SIGTERM;
  const pid_t self = pid_of(host.link_name("proc/self").value_or("")).value_or(0);
  char gone_on = 0;
  if (::write(talk.get(), &self, sizeof(self)) != sizeof(self)) return kKilled + SIGTERM;
  while (::read(talk.get(), &gone_on, 1) < 0 && errno == EINTR) {
  }
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  return work();
}

}  // namespace

int in_own_scope(const HostFs& host, const std::function<int()>& work) {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) return -1;
  UniqueFd ours(ends[0]);
  UniqueFd theirs(ends[1]);
  sigset_t signals{};
  sigset_t before{};
  sigemptyset(&signals);
  for (const int signal : {SIGTERM, SIGINT, SIGCHLD}) sigaddset(&signals, signal);
  ::sigprocmask(SIG_BLOCK, &signals, &before);
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child == 0) {
    ours = UniqueFd();
    return do_as_child(host, parent, before, std::move(theirs), work);
  }
  theirs = UniqueFd();
  int status = -1;
  if (child > 0) {
    pid_t number = 0;
    if (::read(ours.get(), &number, sizeof(number)) == sizeof(number)) {
      if (auto enclosed = enclose(host, number); !enclosed) {
        spdlog::warn(
            "the container's device rules stay: {}; groups on vfio are not taken back, nor disks looked into",
            enclosed.error().message);
      }
    }
    ours = UniqueFd();  // the child continues at the end of this socket
    status = outlive(child, signals);
  }
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  return status;
}

}  // namespace ferry
