// SPDX-License-Identifier: Apache-2.0
// The administrator's configuration of modprobe: the lines of modprobe.d. ABI: modprobe.d(5).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/host_fs.h"

namespace ferry {

/// A command: "options vfio-pci ids=10de:2684".
struct ModprobeLine {
  std::string where;  ///< "/etc/modprobe.d/vfio.conf:3"; parse_modprobe_config() knows only the line
  std::vector<std::string> words;  ///< at least one; the second, a module's name, has '_' for every '-'
  bool operator==(const ModprobeLine&) const = default;
};

struct ModprobeConfig {
  std::vector<ModprobeLine> lines;
  std::vector<std::string> troubles;  ///< files and directories that could not be read
};

/// Parses the commands of one file; `where` is each command's line number, from 1. Comments and empty lines
/// are left out, and a backslash at the end of a line joins it to the next.
std::vector<ModprobeLine> parse_modprobe_config(std::string_view text);

/// Reads all *.conf in kModprobeDirectories; a name in an earlier directory hides the later file.
ModprobeConfig read_modprobe_config(const HostFs& host);

/// The hint if an install line runs `false` or `true` instead of loading `module`, or a vfio module that it
/// needs. Empty: there is no such line.
std::string hint_of_blocked_module(const HostFs& host, std::string_view module);

}  // namespace ferry
