// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ferry::host {

// The kernel's lists of mounted file systems and of swap.

struct Mount {
  std::string number;  ///< of the device, in the kernel's form: "8:17"
  std::string point;
  std::string source;  ///< "/dev/sdb1"; needed for btrfs, whose number is not the device's
};

/// Reads a proc/PID/mountinfo. Lines of another form are skipped. ABI: proc(5).
std::vector<Mount> parse_mountinfo(std::string_view text);

/// The paths in a proc/swaps, both partitions and files. ABI: proc(5).
std::vector<std::string> parse_swaps(std::string_view text);

}  // namespace ferry::host
