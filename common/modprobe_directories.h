// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>

namespace ferry {

/// Directories of modprobe's configuration below the host's root; a file hides files of its name in later
/// ones. ABI: modprobe.d(5). Hosts with a merged /usr have the last two in one place.
inline constexpr std::array kModprobeDirectories = {
    "etc/modprobe.d", "run/modprobe.d", "usr/local/lib/modprobe.d", "usr/lib/modprobe.d", "lib/modprobe.d"};

}  // namespace ferry
