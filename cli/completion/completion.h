// SPDX-License-Identifier: Apache-2.0
// The words that complete a command line, for the user's shell and for kubectl.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "cli/completion/command_model.h"

namespace ferry::cli {

/// The words before the one that the user types.
struct WordsBefore {
  std::map<std::string, std::string> values = {};  ///< of options, by the option's last name: "--file"
  std::vector<std::string> positionals = {};
};

/// Descriptions by name; a description may be empty.
using Names = std::map<std::string, std::string>;

/// Returns names that an option or a positional takes as its value, such as the nodes of a cluster.
using FindNames = std::function<Names(const OptionModel& option, const WordsBefore& before)>;

/// A line for each word that may replace the last of `words`, with its description after a tab. Without any
/// word it completes an empty one. In "--output=j" it replaces only the part behind the '='. Options are
/// offered where the word begins with '-', and where no command and no positional may stand. The last line is
/// a directive: ":4" nothing else, ":0" a file, ":16" a folder. ABI: `ShellCompDirective` of Cobra, which
/// kubectl reads.
std::string completions(const CommandModel& root, const std::vector<std::string>& words,
                        const FindNames& find);

}  // namespace ferry::cli
