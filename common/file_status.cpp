// SPDX-License-Identifier: Apache-2.0
#include "common/file_status.h"

#include <fcntl.h>

namespace ferry {

std::optional<struct stat> file_status(int fd) {
  std::optional<struct stat> out(std::in_place);
  if (fd < 0 || ::fstat(fd, &*out) != 0) out.reset();
  return out;
}

std::optional<struct stat> entry_status(int folder, const std::string& name) {
  std::optional<struct stat> out(std::in_place);
  if (::fstatat(folder, name.c_str(), &*out, AT_SYMLINK_NOFOLLOW) != 0) out.reset();
  return out;
}

}  // namespace ferry
