// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string_view>
#include <unistd.h>

#include "hostfs/host_fs.h"

namespace ferry::test {

/// A host on which a write fails, or is the last thing that this process does.
class FaultyHost final : public HostFs {
 public:
  using HostFs::HostFs;
  Result<> write_file(const std::filesystem::path& relative, std::string_view content, mode_t mode) override {
    return at_a_write([&] { return HostFs::write_file(relative, content, mode); });
  }
  Result<> remove_file(const std::filesystem::path& relative) override {
    return at_a_write([&] { return HostFs::remove_file(relative); });
  }

  int fails_at = -1;
  int fails_behind = -1;  ///< it is done, and said to have failed
  int dies_before = -1;
  int dies_after = -1;
  int writes = 0;

 private:
  Result<> at_a_write(const std::function<Result<>()>& write) {
    const int now = writes++;
    if (now == fails_at) return fail(error_from_errno(ENOSPC, "write"));
    if (now == dies_before) ::_exit(EXIT_SUCCESS);
    auto done = write();
    if (now == dies_after) ::_exit(EXIT_SUCCESS);
    if (now == fails_behind) return fail(error_from_errno(EIO, "make it last"));
    return done;
  }
};

}  // namespace ferry::test
