// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <sys/stat.h>

namespace ferry {

/// The status of an open file; absent with errno set. A negative `fd` leaves errno as the failed opening set
/// it.
std::optional<struct stat> file_status(int fd);

/// The status of an entry of an open folder, for a link the link's own; absent with errno set.
std::optional<struct stat> entry_status(int folder, const std::string& name);

}  // namespace ferry
