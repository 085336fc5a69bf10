// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>

#include "common/host_fs.h"
#include "common/result.h"
#include "common/unique_fd.h"

namespace ferry {

/// A running process that others can see to run, whatever PID namespace they are in: a shared flock on a file
/// of that process's kind, gone with the process however it dies. Two of a kind, as in a rolling update, are
/// both there.
class Presence {
 public:
  /// Makes `file` and its directory. Errors: what the operating system says.
  static Result<Presence> announce(HostFs& host, const std::filesystem::path& file);

 private:
  explicit Presence(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

/// Whether any process has announced itself in `file`. Errors: it cannot be asked.
Result<bool> is_present(const HostFs& host, const std::filesystem::path& file);

/// The only process of its kind: an exclusive flock, gone with the process however it dies.
class OnlyOne {
 public:
  /// Errc::refused: there is another one. Makes `file` and its directory. To wait for one's turn: turn.h.
  static Result<OnlyOne> claim(HostFs& host, const std::filesystem::path& file);

  /// Whether the name still leads to what is held: where it does not, another may hold it too. Errors: it
  /// cannot be asked.
  Result<bool> is_at(const HostFs& host, const std::filesystem::path& file) const;

 private:
  friend class Turn;
  /// Not claimed yet.
  static Result<OnlyOne> open(HostFs& host, const std::filesystem::path& file);
  /// Whether it is claimed now; `file` for the error's words.
  Result<bool> take(const std::filesystem::path& file) const;
  explicit OnlyOne(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

}  // namespace ferry
