// SPDX-License-Identifier: Apache-2.0
// The configuration files of a host as they are, or as they would be once some of them are written: what is
// predicted of a change is predicted from the very bytes that would be there.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/host_fs.h"
#include "common/result.h"

namespace ferry {

/// Paths are those that the host's own programs use: absolute, below its root.
class ConfigFiles {
 public:
  explicit ConfigFiles(const HostFs& host) : host_(&host) {}

  /// Counts as the file's content from now on; nothing is written. std::nullopt: as if there were no file.
  void suppose(const std::filesystem::path& path, std::optional<std::string> content);

  /// ENOENT: there is none.
  Result<std::string> read(const std::filesystem::path& path) const;
  /// Nothing: there is none. Any other reason why it cannot be read is an error: what cannot be read is not
  /// absent.
  Result<std::optional<std::string>> read_if_there(const std::filesystem::path& path) const;

  /// The files that a pattern of Go's filepath.Glob names, in its order; none is no error. `*` and `?` stop
  /// at a slash and take a leading dot.
  /// Errors: a directory on the way that is there cannot be listed.
  Result<std::vector<std::filesystem::path>> glob(const std::filesystem::path& pattern) const;

 private:
  Result<std::vector<std::string>> names_in(const std::filesystem::path& directory) const;

  const HostFs* host_;
  std::map<std::filesystem::path, std::optional<std::string>> supposed_;
};

}  // namespace ferry
