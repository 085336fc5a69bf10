// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>

#include "common/host_fs.h"
#include "common/result.h"
#include "common/unique_fd.h"

namespace ferry {

/// One change of the host at a time: an exclusive flock on run/ferry/hostd/lock, let go when this goes away
/// (or the process dies, however it dies). The descriptor is close-on-exec, so a child stuck in the kernel
/// never keeps it.
class NodeLock {
 public:
  /// Waits until the lock is had or `patience` is over: then Errc::failed, naming the process that holds it.
  /// Then, for a moment, for what a run that was killed is still at (acts_under_way.h).
  static Result<NodeLock> take(HostFs& host, std::chrono::milliseconds patience);

 private:
  explicit NodeLock(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

}  // namespace ferry
