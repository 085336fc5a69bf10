// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "common/result.h"
#include "hostfs/host_fs.h"

namespace ferry::kata {

/// A change of one file; absent content: no file.
struct FileChange {
  std::filesystem::path path;  ///< absolute, on the host
  std::optional<std::string> before;
  std::optional<std::string> after;
  bool operator==(const FileChange&) const = default;
};

/// A file's content; absent: no file. Any other read error is an error.
Result<std::optional<std::string>> content_of(const HostFs& host, const std::filesystem::path& path);

/// Errc::refused: the path is a link, and its target belongs to another program. Writes nothing.
Result<> check_is_no_link(const HostFs& host, const std::filesystem::path& path);

/// Writes `after` atomically; an existing file keeps its owner and mode. Errc::refused: the file differs
/// from `before`, because another program changed it; or check_is_no_link().
Result<> make(HostFs& host, const FileChange& change);

/// The change that rolls `change` back.
FileChange undone(const FileChange& change);

}  // namespace ferry::kata
