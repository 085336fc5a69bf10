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

/// The only process of its kind.
class OnlyOne {
 public:
  /// Errc::refused: there is another one. Makes `file` and its directory.
  static Result<OnlyOne> claim(HostFs& host, const std::filesystem::path& file);

 private:
  explicit OnlyOne(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

}  // namespace ferry
