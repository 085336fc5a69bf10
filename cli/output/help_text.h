// SPDX-License-Identifier: Apache-2.0
// The output of --help: of one command, no wider than the terminal.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/output/text_output.h"
#include "common/result.h"

namespace CLI {
class App;
class Success;
}  // namespace CLI

namespace ferry::cli {

/// A command line at the end of a command's help. It also stands in the manual page.
struct Example {
  std::string_view command;  ///< the path of its command: "vfio bind"
  std::string_view does;     ///< a sentence without its full stop
  std::string_view line;     ///< "ferry vfio bind --all"
};

struct StatusMeaning {
  std::string_view status;
  std::string_view meaning;
};

/// A word of other programs that a user may try, and the verb that does it here.
struct OtherWord {
  std::string_view word;
  std::string_view verb;
};

/// A verb or an option that a former state of the program had.
struct FormerWord {
  std::string_view command;  ///< the path of the command that had it; empty: the program itself
  std::string_view word;     ///< "selftest", "--capture"
  std::string_view instead;  ///< the new way, as a hint
};

/// The parts of a program's help that its command line does not have.
struct HelpFrame {
  std::string program = {};  ///< "kubectl ferry"; empty: the name of the command line
  std::span<const Example> examples = {};
  std::span<const StatusMeaning> statuses = {};
  std::span<const OtherWord> other_words = {};
  std::span<const FormerWord> former_words = {};
};

/// The help of `command` as CLI11 formats it, no wider than `output`, with notes, examples and exit statuses.
/// Examples of the commands below it count as its own. The help of the program itself has the first ones of a
/// few commands.
std::string help_text(const CLI::App& command, const HelpFrame& frame, const TextOutput& output);

/// help_text() of the command with these words below `root`. Errc::usage: there is none.
Result<std::string> help_of(const CLI::App& root, const std::vector<std::string>& words,
                            const HelpFrame& frame, const TextOutput& output);

/// Prints the help or version that was asked for instead of a command, to standard output. Returns the exit
/// status.
int print_help(const CLI::App& app, const CLI::Success& asked, HelpFrame frame = {});

}  // namespace ferry::cli
