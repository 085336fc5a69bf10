// SPDX-License-Identifier: Apache-2.0
// How a systemd unit starts containerd: which file it is given. ABI: systemd.service(5), "COMMAND LINES";
// containerd(8), --config and --address.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ferry {

/// The words of an ExecStart=, as far as a file tells them.
struct CommandWords {
  std::vector<std::string> words;
  /// Something in it is known to systemd alone: a variable of the environment, or a specifier.
  bool open = false;
};
/// Quotes and escapes are taken away, and what stands in front of the program's path; a second command behind
/// `;` is left out. Absent: there is no command in it, or it has half a quote.
std::optional<CommandWords> command_words(std::string_view exec_start);

struct ContainerdStart {
  /// Absent: another program is started, which starts containerd as it likes.
  std::optional<std::filesystem::path> program;
  /// Absolute: a service's folder is "/". Absent: none is named, and containerd takes its own.
  std::optional<std::filesystem::path> configuration;
  std::optional<std::filesystem::path> socket;
  bool open = false;  ///< there may be more that is not known here
};
ContainerdStart containerd_start(const CommandWords& command);

}  // namespace ferry
