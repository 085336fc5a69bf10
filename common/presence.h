// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>

#include "common/host_fs.h"
#include "common/result.h"
#include "common/unique_fd.h"

namespace ferry {

/// Shows to other processes, in any PID namespace, that this one runs: a shared flock(2) on a file of its
/// kind, released when the process ends. Several of a kind may hold it, as in a rolling update.
class Presence {
 public:
  /// Makes `file` and its directory. Errors: those of the operating system.
  static Result<Presence> announce(HostFs& host, const std::filesystem::path& file);

 private:
  explicit Presence(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

/// True: a process has announced itself in `file`. Errors: the file cannot be opened or locked.
Result<bool> is_present(const HostFs& host, const std::filesystem::path& file);

/// Allows one process of a kind: an exclusive flock(2), released when the process ends.
class OnlyOne {
 public:
  /// Errc::refused: another process holds the lock. Makes `file` and its directory. turn.h waits for the
  /// lock.
  static Result<OnlyOne> claim(HostFs& host, const std::filesystem::path& file);

  /// False: `file` names another file now, which another process may have locked. Errors: it cannot be read.
  Result<bool> is_at(const HostFs& host, const std::filesystem::path& file) const;

 private:
  friend class Turn;
  /// Opens the file without locking it.
  static Result<OnlyOne> open(HostFs& host, const std::filesystem::path& file);
  /// True: locked now. `file` is for the error's message.
  Result<bool> take(const std::filesystem::path& file) const;
  explicit OnlyOne(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

}  // namespace ferry
