// SPDX-License-Identifier: Apache-2.0
#include "host/process_ends.h"

#include <algorithm>
#include <cerrno>
#include <sys/syscall.h>
#include <unistd.h>
#include <utility>

#include "common/descriptor_limit.h"
#include "common/pid_namespace.h"

namespace ferry {
namespace {

/// True if the host's /proc shows this process's PID namespace; other numbers would name other processes.
bool numbers_are_ours(const HostFs& host) {
  const auto own = own_pid_namespace(host);
  const auto shown = pid_namespace_of_proc(host);
  return own && shown && *own == *shown;
}

// glibc has no wrapper before 2.36. ABI: pidfd_open(2), Linux 5.3.
UniqueFd open_pidfd(int pid) {
  return UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
}

}  // namespace

ProcessEnds::ProcessEnds(EventLoop& loop, const HostFs& host, std::function<void()> ended)
    : loop_(loop), host_(host), ended_(std::move(ended)) {}

ProcessEnds::~ProcessEnds() {
  forget_all();
}

void ProcessEnds::forget_all() {
  for (const auto& [pid, fd] : watched_) loop_.forget(fd.get());
  watched_.clear();
}

bool ProcessEnds::watch(const std::set<int>& processes) {
  std::erase_if(told_, [&](int pid) { return !processes.contains(pid); });
  std::erase_if(watched_, [&](const auto& one) {
    if (processes.contains(one.first)) return false;
    loop_.forget(one.second.get());
    return true;
  });
  if (processes.empty()) return true;
  if (!numbers_are_ours(host_)) return false;
  const std::size_t most = std::min(kMost, descriptor_limit() / 4);
  bool all = true;
  for (const int pid : processes) {
    if (watched_.contains(pid) || told_.contains(pid)) continue;
    if (watched_.size() >= most) return false;
    UniqueFd fd = open_pidfd(pid);
    if (!fd.valid() && errno == ESRCH) {  // it ended between the look and now
      tell(pid);
      continue;
    }
    if (!fd.valid() && (errno == EMFILE || errno == ENFILE)) {
      forget_all();  // the rest of hostd needs the remaining descriptors
      return false;
    }
    if (!fd.valid()) {
      all = false;
      continue;
    }
    loop_.watch(fd.get(), [this, pid] { tell(pid); });
    watched_.emplace(pid, std::move(fd));
  }
  return all;
}

/// Reports each process once. It is not watched again if a later look still lists it as a user.
void ProcessEnds::tell(int pid) {
  told_.insert(pid);
  if (const auto end = watched_.find(pid); end != watched_.end()) {
    loop_.forget(end->second.get());
    watched_.erase(end);
  }
  ended_();
}

}  // namespace ferry
