// SPDX-License-Identifier: Apache-2.0
// A host's configuration files as they are, or as they would be after some writes. A prediction so reads
// the exact bytes of the planned files.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
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

}  // namespace ferry::kata
