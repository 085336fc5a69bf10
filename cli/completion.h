// SPDX-License-Identifier: Apache-2.0
// Completion of command lines by the user's shell.
#pragma once

#include <string>
#include <vector>

#include "cli/command_model.h"

namespace ferry {

enum class Shell { bash, zsh, fish };

/// A script for the shell to read that completes the commands, options and words of `root` wherever one of
/// `programs` is called; its functions are named after the first of these. FILE and DIR are completed by what
/// is there, other values not at all. It runs no program.
std::string completion_script(const CommandModel& root, Shell shell,
                              const std::vector<std::string>& programs);

// One each, as completion_script() has it.
std::string bash_completion(const CommandModel& root, const std::vector<std::string>& programs);
std::string zsh_completion(const CommandModel& root, const std::vector<std::string>& programs);
std::string fish_completion(const CommandModel& root, const std::vector<std::string>& programs);

/// A word of the script that the shell takes as it stands, in single quotes: bash and zsh.
std::string shell_quoted(const std::string& text);

/// `program` as part of a function's name: "kubectl_ferry" of kubectl-ferry.
std::string function_name(const std::string& program);

/// `text` with `to` in each place of `from`.
std::string replaced(std::string text, const std::string& from, const std::string& to);

}  // namespace ferry
