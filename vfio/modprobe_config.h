// SPDX-License-Identifier: Apache-2.0
// What the administrator told modprobe: the lines of modprobe.d. ABI: modprobe.d(5).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/host_fs.h"

namespace ferry {

/// One command: "options vfio-pci ids=10de:2684".
struct ModprobeLine {
  std::string where;               ///< "/etc/modprobe.d/vfio.conf:3"; parse() knows the line only
  std::vector<std::string> words;  ///< at least one; the second, a module's name, has '_' for every '-'
  bool operator==(const ModprobeLine&) const = default;
};

struct ModprobeConfig {
  std::vector<ModprobeLine> lines;
  std::vector<std::string> troubles;  ///< files and directories that could not be read
};

/// The commands of one file, each with its line's number, from 1, as `where`. Comments and empty lines are
/// left out; a backslash at its end joins a line to the next.
std::vector<ModprobeLine> parse_modprobe_config(std::string_view text);

/// All *.conf in kModprobeDirectories; a name in an earlier directory hides the later.
ModprobeConfig read_modprobe_config(const HostFs& host);

/// The hint where an install line runs `false` or `true` instead of loading `module`, or vfio that it needs.
/// Empty: there is no such line.
std::string hint_of_blocked_module(const HostFs& host, std::string_view module);

}  // namespace ferry
