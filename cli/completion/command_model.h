// SPDX-License-Identifier: Apache-2.0
// The model of a command line, read from the tree that parses it. Completion is made from it, and tests
// compare pages with it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/output/text_output.h"

namespace CLI {
class App;
class Option;
class Success;
}  // namespace CLI

namespace ferry::cli {

struct OptionModel {
  std::vector<std::string> names = {};  ///< "-o", "--output"; none for a positional
  std::string description = {};
  std::string value = {};               ///< the value's name: FILE, DIR or another; empty: no value
  std::vector<std::string> words = {};  ///< possible values, if they are few
  bool repeats = false;

  bool takes_value() const { return !value.empty(); }
};

struct CommandModel {
  std::vector<std::string> path = {};  ///< words after the program's; none for the program
  std::string description = {};
  std::vector<OptionModel> options = {};
  std::vector<OptionModel> inherited = {};  ///< of the commands above, valid here, too
  std::vector<OptionModel> positionals = {};
  std::vector<CommandModel> commands = {};

  std::string words() const;  ///< the path with blanks between: "vfio bind"
};

/// The model of `app` without hidden options and commands, which have no group.
CommandModel command_model(const CLI::App& app);

/// `root` and all commands below it, each before its own subcommands.
std::vector<const CommandModel*> all_commands(const CommandModel& root);

/// Makes `words` the suggestions of an option that also takes others, or reports wrong ones itself. Returns
/// the option.
CLI::Option* suggest_words(CLI::Option* option, const std::vector<std::string>& words);

// The output of --help, no wider than the terminal.

/// CLI11's text broken into lines that fit, each description below its own beginning. A canvas without a
/// width leaves it unchanged.
std::string fitted_help(std::string_view help, const TextOutput& output);

/// Prints the help or version that was asked for instead of a command, to standard output. Returns the exit
/// status.
int print_help(const CLI::App& app, const CLI::Success& asked);

}  // namespace ferry::cli
