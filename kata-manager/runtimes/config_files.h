// SPDX-License-Identifier: Apache-2.0
// A host's configuration files as they are, or as they would be after some writes. A prediction so reads
// the exact bytes of the planned files.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "hostfs/host_fs.h"

namespace ferry::kata {

/// Paths are absolute below the host's root, as its programs use them.
class ConfigFiles {
 public:
  explicit ConfigFiles(const HostFs& host) : host_(&host) {}

  /// Sets the file's content for later reads, without a write. std::nullopt: no file.
  void suppose(const std::filesystem::path& path, std::optional<std::string> content);

  /// ENOENT: no file.
  Result<std::string> read(const std::filesystem::path& path) const;
  /// Absent: no file. Any other read error is an error: an unreadable file is not absent.
  Result<std::optional<std::string>> read_if_there(const std::filesystem::path& path) const;

  /// The files that match a pattern of Go's filepath.Glob, in its order; an empty result is no error. `*`
  /// and `?` match a leading dot but no slash. Errors: an existing directory on the way cannot be listed.
  Result<std::vector<std::filesystem::path>> glob(const std::filesystem::path& pattern) const;

 private:
  Result<std::vector<std::string>> names_in(const std::filesystem::path& directory) const;

  const HostFs* host_;
  std::map<std::filesystem::path, std::optional<std::string>> supposed_;
};

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

// A block of Ferry, between two comments, at the end of another program's file. The text around the block
// stays byte for byte, and removing the block restores the file.

/// Puts `body` into the block, or into a new block at the end. Absent `text`: the file does not exist. Line
/// ends are those of the file's last line. Errc::invalid_config: two blocks, or half a block.
Result<std::string> with_block(const std::optional<std::string>& text, std::string_view body);

/// The file without the block; absent: the file was created with the block. A file without a block is
/// returned unchanged. Errors: as with_block().
Result<std::optional<std::string>> without_block(const std::string& text);

/// The lines between the comments, each ended by "\n"; absent: no block. Errors: as with_block().
Result<std::optional<std::string>> block_of(std::string_view text);

}  // namespace ferry::kata
