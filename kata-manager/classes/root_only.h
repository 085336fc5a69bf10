// SPDX-License-Identifier: Apache-2.0
// Checks that only root can change a folder of the host.
//
// Kata's shim starts the programs that a configuration names as root, and Ferry bounds no folder of
// `file://`, since it is an administrator's. So another user, such as the agent's, must not be able to write
// it.
#pragma once

#include <filesystem>

#include "common/result.h"
#include "hostfs/host_fs.h"

namespace ferry::kata {

/// Checks `folder` (absolute, on the host), all that is in it, and the way to it from the host's root. Each
/// entry must belong to root or to this process's user, and no other user may write it. A folder on the way
/// may be writable if it has the sticky bit: the next entry on the way then stays. The same holds for the
/// targets of links. A target that is missing is no error, unless another user can make it.
///
/// Errc::refused names the first wrong entry, and the hint has the commands that help. The same code: more
/// than 100,000 entries, more than 40 levels, or links that lead in a circle. Errc::not_found and read
/// errors: of `folder`. Without root's rights an unreadable folder in it is not looked at.
Result<> check_root_only(const HostFs& host, const std::filesystem::path& folder);

}  // namespace ferry::kata
