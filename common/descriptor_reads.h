// SPDX-License-Identifier: Apache-2.0
// Reading what has been opened. `what` says what errors begin with ("read /sys/..."), and is called for one
// only: reads are many, and few of them fail.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "common/host_fs.h"
#include "common/result.h"

namespace ferry {

using What = std::function<std::string()>;

/// The bound for a file that does not say how large it is, as those of procfs, or that grows while it is
/// read.
inline constexpr std::size_t kMostRead = std::size_t{64} << 20U;

/// All bytes from where it stands. EFBIG: they are more than `most`.
Result<std::string> read_to_end(int fd, const What& what, std::size_t most = kMostRead);
/// The same of an attribute of sysfs, which comes whole with one read: it is shorter than a page (kernel,
/// Documentation/filesystems/sysfs.rst).
Result<std::string> read_attribute_text(int fd, const What& what);
/// The target of a symbolic link called `name` in a directory; `name` empty: of one opened by O_PATH itself.
/// EINVAL: it is none.
Result<std::string> read_link(int fd, const char* name, const What& what);
/// What is in a directory, sorted, without "." and "..".
Result<std::vector<DirectoryEntry>> read_entries(int fd, const What& what);

}  // namespace ferry
