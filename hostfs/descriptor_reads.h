// SPDX-License-Identifier: Apache-2.0
// Reads of open descriptors. `what` gives the beginning of an error ("read /sys/..."), and is called for
// errors only: there are many reads, and few fail.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "common/result.h"
#include "hostfs/host_fs.h"

namespace ferry {

using What = std::function<std::string()>;

/// Bound for files that grow while they are read, or give no size, like those of procfs. Bytes.
inline constexpr std::size_t kMostRead = std::size_t{64} << 20U;

/// All bytes from the file's position. EFBIG: more than `most` bytes.
Result<std::string> read_to_end(int fd, const What& what, std::size_t most = kMostRead);
/// An attribute of sysfs: a short read is its last, since an attribute is shorter than a page (kernel,
/// Documentation/filesystems/sysfs.rst).
Result<std::string> read_attribute_text(int fd, const What& what);
/// The target of the symbolic link `name` in a directory, or with an empty `name` of a link opened by O_PATH.
/// EINVAL: not a link.
Result<std::string> read_link(int fd, const char* name, const What& what);
/// The entries of a directory, sorted, without "." and "..".
Result<std::vector<DirectoryEntry>> read_entries(int fd, const What& what);
/// The names of these entries.
Result<std::vector<std::string>> read_names(int fd, const What& what);
/// True: both descriptors are of one file. False also if it cannot be read.
bool is_same_file(int one, int other);

}  // namespace ferry
