// SPDX-License-Identifier: Apache-2.0
// What a command line can be, as values read from the tree that parses it: for completion, and to hold pages
// against.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace ferry {

struct OptionModel {
  std::vector<std::string> names = {};  ///< as they are written: "-o", "--output"; none of a positional
  std::string description = {};
  std::string value = {};  ///< what its value is called: FILE, DIR or another; empty: it takes none
  std::vector<std::string> words = {};  ///< what the value can be, where these are few
  bool repeats = false;

  bool takes_value() const { return !value.empty(); }
};

struct CommandModel {
  std::vector<std::string> path = {};  ///< the words behind the program: none of the program itself
  std::string description = {};
  std::vector<OptionModel> options = {};
  std::vector<OptionModel> inherited = {};  ///< of the commands above, where they may stand behind it too
  std::vector<OptionModel> positionals = {};
  std::vector<CommandModel> commands = {};

  std::string words() const;  ///< the path with blanks between: "vfio bind"
};

/// What `app` parses. Hidden options and commands, which have no group, are not in it.
CommandModel command_model(const CLI::App& app);

/// `root` and everything below it, each before what is below.
std::vector<const CommandModel*> all_commands(const CommandModel& root);

/// Makes these the words of an option that takes others too or says itself what it does not take. Gives the
/// option.
CLI::Option* suggest_words(CLI::Option* option, const std::vector<std::string>& words);

}  // namespace ferry
