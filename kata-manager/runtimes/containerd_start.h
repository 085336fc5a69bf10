// SPDX-License-Identifier: Apache-2.0
// Parses the command of a systemd unit that starts containerd, for its files. ABI: systemd.service(5),
// "COMMAND LINES"; containerd(8), --config and --address.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ferry::kata {

/// The words of an ExecStart=, as far as the unit's file has them.
struct CommandWords {
  std::vector<std::string> words;
  /// True: it has an environment variable or a specifier, which only systemd can resolve.
  bool open = false;
};
/// Removes quotes, escapes and the prefixes of the program's path, and ignores a second command after `;`.
/// Absent: no command, or an unbalanced quote.
std::optional<CommandWords> command_words(std::string_view exec_start);

struct ContainerdStart {
  /// Absent: another program starts containerd.
  std::optional<std::filesystem::path> program;
  /// Absolute, because a service's working directory is "/". Absent: containerd's default.
  std::optional<std::filesystem::path> configuration;
  std::optional<std::filesystem::path> socket;
};
ContainerdStart containerd_start(const CommandWords& command);

}  // namespace ferry::kata
