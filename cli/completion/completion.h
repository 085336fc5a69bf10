// SPDX-License-Identifier: Apache-2.0
// Completion of command lines by the user's shell.
#pragma once

#include <string>

#include "cli/completion/command_model.h"

namespace ferry::cli {

// Each is a script for the shell that completes commands, options and words of `root`. FILE and DIR complete
// to existing paths. For names of the host (completed_names.h) the script runs `program`; other values do not
// complete.
std::string bash_completion(const CommandModel& root, const std::string& program);
std::string zsh_completion(const CommandModel& root, const std::string& program);
std::string fish_completion(const CommandModel& root, const std::string& program);

/// `text` in single quotes, which bash and zsh take literally.
std::string shell_quoted(const std::string& text);

/// `program` as part of a function's name: "kubectl_ferry" for kubectl-ferry.
std::string function_name(const std::string& program);

/// `text` with each `from` replaced by `to`.
std::string replaced(std::string text, const std::string& from, const std::string& to);

}  // namespace ferry::cli
