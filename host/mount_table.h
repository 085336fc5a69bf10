// SPDX-License-Identifier: Apache-2.0
// What the kernel lists of mounted file systems and of swap.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ferry {

struct Mount {
  std::string number;  ///< of the device, as it is written: "8:17"
  std::string point;
  std::string source;  ///< "/dev/sdb1"; btrfs shows a number of its own, so this counts too
};

/// A file proc/PID/mountinfo. Lines of another form are passed over. ABI: proc(5).
std::vector<Mount> parse_mountinfo(std::string_view text);

/// The paths in a file proc/swaps, partitions' and files'. ABI: proc(5).
std::vector<std::string> parse_swaps(std::string_view text);

}  // namespace ferry
