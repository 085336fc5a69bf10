// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <set>

#include "common/event_loop.h"
#include "common/host_fs.h"
#include "common/unique_fd.h"

namespace ferry {

/// Reports the ends of processes, by a pidfd each. Belongs to the loop's thread.
class ProcessEnds {
 public:
  /// The most processes at a time, and fewer if descriptors are scarce: a job may have thousands of
  /// processes, and the loop's owner needs descriptors for its work.
  static constexpr std::size_t kMost = 64;

  /// `ended` is called once for each process, from the loop or watch(). `loop` and `host` must outlive this.
  ProcessEnds(EventLoop& loop, const HostFs& host, std::function<void()> ended);
  ProcessEnds(const ProcessEnds&) = delete;
  ProcessEnds& operator=(const ProcessEnds&) = delete;
  ProcessEnds(ProcessEnds&&) = delete;
  ProcessEnds& operator=(ProcessEnds&&) = delete;
  ~ProcessEnds();

  /// Watches these processes, by their numbers in the host's /proc, and forgets all others. False if some
  /// ends will be missed: the numbers belong to another PID namespace, or there are too many processes.
  bool watch(const std::set<int>& processes);

 private:
  void forget_all();
  void tell(int pid);

  EventLoop& loop_;
  const HostFs& host_;
  const std::function<void()> ended_;
  std::map<int, UniqueFd> watched_;
  std::set<int> told_;  // reported ones among the last watch()'s processes
};

}  // namespace ferry
