// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <string>

#include "common/event_loop.h"
#include "common/owned_timer.h"
#include "common/pinned.h"
#include "common/result.h"
#include "common/unique_fd.h"
#include "hostfs/directory_watch.h"
#include "hostfs/host_fs.h"

namespace ferry {

/// Shows to other processes, in any PID namespace, that this one runs: a shared flock(2) on a file of its
/// kind, released when the process ends. Several of a kind may hold it, as in a rolling update.
class LivenessLock {
 public:
  /// Makes `file` and its directory. Waits for is_present(), which holds the file for a moment;
  /// Errc::refused: after `patience` a process still holds it alone. Each process that may read the file can
  /// do that.
  static Result<LivenessLock> announce(HostFs& host, const std::filesystem::path& file,
                                       std::chrono::milliseconds patience = std::chrono::seconds(1));

 private:
  explicit LivenessLock(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

/// True: a process has announced itself in `file`. Errors: the file cannot be opened or locked.
Result<bool> is_present(const HostFs& host, const std::filesystem::path& file);

/// Allows one process of a kind: an exclusive flock(2), released when the process ends.
class InstanceLock {
 public:
  /// Errc::refused: another process holds the lock. Makes `file` and its directory. InstanceLockQueue waits
  /// for the lock.
  static Result<InstanceLock> claim(HostFs& host, const std::filesystem::path& file);

  /// False: `file` names another file now, which another process may have locked. Errors: it cannot be read.
  Result<bool> is_at(const HostFs& host, const std::filesystem::path& file) const;

 private:
  friend class InstanceLockQueue;
  /// Opens the file without locking it.
  static Result<InstanceLock> open(HostFs& host, const std::filesystem::path& file);
  /// True: locked now. `file` is for the error's message.
  Result<bool> take(const std::filesystem::path& file) const;
  explicit InstanceLock(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

/// Waits to become the InstanceLock of a file. A released lock raises no event, but its holder also closes
/// the file, which inotify reports. Then the lock is tried with a growing pause, and at least every second
/// for as long as it takes. Belongs to the loop's thread.
class InstanceLockQueue : Pinned {
 public:
  /// `ours` is called in the loop, once, and may destroy this. Loop and host must outlive this.
  InstanceLockQueue(EventLoop& loop, HostFs& host, std::filesystem::path file,
                    std::function<void(InstanceLock)> ours);
  ~InstanceLockQueue();

 private:
  void try_now();
  void try_in(EventLoop::Clock::duration pause);
  void watch();

  EventLoop& loop_;
  HostFs& host_;
  const std::filesystem::path file_;
  const std::function<void(InstanceLock)> ours_;
  std::optional<DirectoryWatch> watch_;
  std::optional<InstanceLock> candidate_;  // opened, not locked; closing it would look like the holder's end
  OwnedTimer timer_{loop_};
  EventLoop::Clock::duration pause_;
  std::set<std::string> logged_;
};

/// Allows one change of the host at a time: an exclusive flock(2) on run/ferry/hostd/lock, released with this
/// object or at the end of the process. The descriptor is close-on-exec, so that a stuck child does not keep
/// the lock.
class NodeLock {
 public:
  /// Waits for the lock; Errc::failed after `patience`, with the process that holds it. Then waits shortly
  /// for in-flight acts of killed processes (in_flight_writes.h).
  static Result<NodeLock> take(HostFs& host, std::chrono::milliseconds patience);

 private:
  explicit NodeLock(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

}  // namespace ferry
