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

/// Tells when processes end, by a pidfd each. Belongs to the loop's thread.
class ProcessEnds {
 public:
  /// So many at a time, and fewer where few descriptors are to be had: a job may have thousands, and whoever
  /// runs the loop needs some for its work.
  static constexpr std::size_t kMost = 64;

  /// `ended` is called once for each process, in the loop or by watch(). Both must outlive this.
  ProcessEnds(EventLoop& loop, const HostFs& host, std::function<void()> ended);
  ProcessEnds(const ProcessEnds&) = delete;
  ProcessEnds& operator=(const ProcessEnds&) = delete;
  ProcessEnds(ProcessEnds&&) = delete;
  ProcessEnds& operator=(ProcessEnds&&) = delete;
  ~ProcessEnds();

  /// Watches these from now on, as numbered in the host's /proc, and no others. Whether the end of every one
  /// is told: not where those numbers are another PID namespace's, nor of more than can be watched.
  bool watch(const std::set<int>& processes);

 private:
  void forget_all();
  void tell(int pid);

  EventLoop& loop_;
  const HostFs& host_;
  const std::function<void()> ended_;
  std::map<int, UniqueFd> watched_;
  std::set<int> told_;  // of those that watch() named last
};

}  // namespace ferry
