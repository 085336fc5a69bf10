// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "common/host_fs.h"
#include "common/result.h"

namespace ferry {

/// One file as it is and as it shall be; absent: there is none.
struct FileChange {
  std::filesystem::path path;  ///< absolute, on the host
  std::optional<std::string> before;
  std::optional<std::string> after;
  bool operator==(const FileChange&) const = default;
};

/// What a file holds; absent: there is none. Any other reason why it cannot be read is an error.
Result<std::optional<std::string>> content_of(const HostFs& host, const std::filesystem::path& path);

/// Errc::refused: it is a link, and so another's file. Nothing is written.
Result<> check_is_no_link(const HostFs& host, const std::filesystem::path& path);

/// Writes `after`, whole or not at all; an existing file keeps its owner and mode.
/// Errc::refused: the file is not as it was `before`: somebody else writes it; or check_is_no_link().
Result<> make(HostFs& host, const FileChange& change);

/// The way back of a change.
FileChange undone(const FileChange& change);

}  // namespace ferry
