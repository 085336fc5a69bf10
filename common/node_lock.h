// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>

#include "common/host_fs.h"
#include "common/result.h"
#include "common/unique_fd.h"

namespace ferry {

/// Allows one change of the host at a time: an exclusive flock(2) on run/ferry/hostd/lock, released with this
/// object or at the end of the process. The descriptor is close-on-exec, so that a stuck child does not keep
/// the lock.
class NodeLock {
 public:
  /// Waits for the lock; Errc::failed after `patience`, with the process that holds it. Then waits shortly
  /// for in-flight acts of killed processes (acts_under_way.h).
  static Result<NodeLock> take(HostFs& host, std::chrono::milliseconds patience);

 private:
  explicit NodeLock(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

}  // namespace ferry
