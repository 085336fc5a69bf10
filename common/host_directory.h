// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "common/host_fs.h"
#include "common/result.h"
#include "common/unique_fd.h"

namespace ferry {

/// A directory of the host held open, for who reads much of one device (or of a bus): the way to it is walked
/// once, and all that is read is of the same device, whatever comes to have its name meanwhile. Names are of
/// what is in it (or "."), never paths, and no link is followed.
class HostDirectory {
 public:
  /// `relative` as HostFs has it.
  static Result<HostDirectory> open(const HostFs& host, std::filesystem::path relative);
  /// The same with the names in it, sorted: two system calls fewer than open() and list() take.
  static Result<HostDirectory> open(const HostFs& host, std::filesystem::path relative,
                                    std::vector<std::string>& names);

  /// As HostFs has them. An attribute is one of sysfs, which comes with one read.
  Result<std::string> read_attribute(const char* name) const;
  Result<std::string> read_file(const char* name) const;
  Result<std::string> link_name(const char* name) const;
  Result<std::string> link_target(const char* name) const;
  Result<std::vector<std::string>> list(const char* name) const;
  Result<UniqueFd> open(const char* name, int flags) const;
  /// Whether both are one directory, whatever was made and removed there meanwhile.
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
