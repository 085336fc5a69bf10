// SPDX-License-Identifier: Apache-2.0
// The model of a command line, read from the tree that parses it. Help and completion are made from it, and
// tests compare pages with it.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace ferry::cli {

struct OptionModel {
  std::vector<std::string> names = {};  ///< "-o", "--output"; none for a positional
  std::string description = {};
  std::string value = {};               ///< the value's name: FILE, DIR or another; empty: no value
  std::vector<std::string> words = {};  ///< possible values, if they are few
  bool repeats = false;
  bool required = false;
  std::string usual = {};                  ///< the default, if help shows one
  std::vector<std::string> needs = {};     ///< options that must be given, too
  std::vector<std::string> excludes = {};  ///< options that must not be given, too
  std::string variable = {};               ///< environment variable that gives the value; empty: none
};

struct CommandModel {
  std::vector<std::string> path = {};     ///< words after the program's; none for the program
  std::vector<std::string> aliases = {};  ///< other last words of the path
  std::string description = {};
  std::vector<OptionModel> options = {};  ///< its own; those of the commands above are valid, too
  std::vector<OptionModel> positionals = {};
  std::vector<CommandModel> commands = {};
  std::string notes = {};  ///< further paragraphs of its help, one a line

  std::vector<std::string> names() const;  ///< the last word of the path, and the aliases
};

/// The model of `app` without hidden options and commands, which have no group.
CommandModel command_model(const CLI::App& app);

/// The model of an option or a positional.
OptionModel option_model(const CLI::Option& option);

/// Makes `words` the suggestions of an option that also takes others, or reports wrong ones itself. Returns
/// the option.
CLI::Option* suggest_words(CLI::Option* option, const std::vector<std::string>& words);

/// The deepest command that was parsed. Its help and its names are those that the user needs.
const CLI::App& parsed_command(const CLI::App& app);

/// The words of a command below the program's name: "vfio bind"; empty: the program itself.
std::string path_of(const CLI::App& command);

/// The names of the commands right below `app`, and their aliases.
std::vector<std::string> verbs_of(const CLI::App& app);

}  // namespace ferry::cli
