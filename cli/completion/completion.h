// SPDX-License-Identifier: Apache-2.0
// Completion of command lines by the user's shell.
#pragma once

#include <string>
#include <vector>

#include "cli/completion/command_model.h"

namespace ferry::cli {

enum class Shell { bash, zsh, fish };

/// A script for the shell that completes commands, options and words of `root` for each of `programs`. Its
/// functions are named after the first program. FILE and DIR complete to existing paths. For names of the
/// host (completed_names.h) the script runs the first program; other values do not complete.
std::string completion_script(const CommandModel& root, Shell shell,
                              const std::vector<std::string>& programs);

// The scripts of completion_script() for each shell.
std::string bash_completion(const CommandModel& root, const std::vector<std::string>& programs);
std::string zsh_completion(const CommandModel& root, const std::vector<std::string>& programs);
std::string fish_completion(const CommandModel& root, const std::vector<std::string>& programs);

/// `text` in single quotes, which bash and zsh take literally.
std::string shell_quoted(const std::string& text);

/// `program` as part of a function's name: "kubectl_ferry" for kubectl-ferry.
std::string function_name(const std::string& program);

/// `text` with each `from` replaced by `to`.
std::string replaced(std::string text, const std::string& from, const std::string& to);

}  // namespace ferry::cli
