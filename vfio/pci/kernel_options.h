// SPDX-License-Identifier: Apache-2.0
// Options that the administrator has given the kernel and its modules.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "hostfs/host_fs.h"

namespace ferry::vfio {

// The parameters of the running kernel. They explain the facts in sysfs and decide nothing.
// ABI: Documentation/admin-guide/kernel-parameters.rst; splitting as in lib/cmdline.c, next_arg.

struct KernelParameter {
  std::string name;                  ///< with '_' for every '-', which the kernel treats alike
  std::optional<std::string> value;  ///< absent: no '='
  std::string text;                  ///< the parameter as it was written
  /// True if `word` is one of the value's parts between commas.
  bool lists(std::string_view word) const;
  bool operator==(const KernelParameter&) const = default;
};

class KernelCommandLine {
 public:
  /// Parses parameters up to a lone "--", after which those of init follow. Any text gives some list.
  static KernelCommandLine parse(std::string_view text);
  /// Parses proc/cmdline.
  static Result<KernelCommandLine> read(const HostFs& host);

  /// They are in order of appearance.
  const std::vector<KernelParameter>& parameters() const { return parameters_; }
  /// The last parameter of that name; nullptr: there is none. `name` is written with '_'.
  const KernelParameter* last(std::string_view name) const;
  /// The first parameter of that name whose value lists `word`; nullptr: there is none.
  const KernelParameter* listing(std::string_view name, std::string_view word) const;

 private:
  std::vector<KernelParameter> parameters_;
};

// The administrator's configuration of modprobe: the lines of modprobe.d. ABI: modprobe.d(5).

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

}  // namespace ferry::vfio
