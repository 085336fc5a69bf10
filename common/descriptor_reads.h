// SPDX-License-Identifier: Apache-2.0
// Reading what has been opened. `what` is what errors begin with: "read /sys/...".
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/host_fs.h"
#include "common/result.h"

namespace ferry {

/// All bytes from where it stands.
Result<std::string> read_to_end(int fd, std::string_view what);
/// The target of a symbolic link called `name` in a directory; `name` empty: of one opened by O_PATH itself.
/// EINVAL: it is none.
Result<std::string> read_link(int fd, const char* name, std::string_view what);
/// What is in a directory, sorted, without "." and "..".
Result<std::vector<DirectoryEntry>> read_entries(int fd, std::string_view what);

}  // namespace ferry
