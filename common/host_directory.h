// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "common/host_fs.h"
#include "common/result.h"
#include "common/unique_fd.h"

namespace ferry {

/// An open directory of the host, for many reads of one device or bus. The path is walked once, and all reads
/// are of the same directory, even if its name comes to mean another. Names are of entries (or "."), never
/// paths; no link is followed.
class HostDirectory {
 public:
  /// `relative` as in HostFs.
  static Result<HostDirectory> open(const HostFs& host, std::filesystem::path relative);
  /// The same with the names in it, sorted: two system calls fewer than open() and list() take.
  static Result<HostDirectory> open(const HostFs& host, std::filesystem::path relative,
                                    std::vector<std::string>& names);

  /// Reads as in HostFs. An attribute is one of sysfs, which comes whole with one read.
  Result<std::string> read_attribute(const char* name) const;
  Result<std::string> read_file(const char* name) const;
  Result<std::string> link_name(const char* name) const;
  Result<std::string> link_target(const char* name) const;
  Result<std::vector<std::string>> list(const char* name) const;
  Result<UniqueFd> open(const char* name, int flags) const;
  /// True: both are the same directory, not only of the same name.
  bool is_same(const HostDirectory& other) const;

 private:
  HostDirectory(UniqueFd fd, std::filesystem::path relative)
      : fd_(std::move(fd)), relative_(std::move(relative)) {}
  std::string describe(const char* verb, const char* name) const;
  Result<std::vector<std::string>> names_of(int fd, const char* name) const;

  UniqueFd fd_;
  std::filesystem::path relative_;
};

}  // namespace ferry
