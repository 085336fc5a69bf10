// SPDX-License-Identifier: Apache-2.0
// Programs for the shell that complete command lines. All words that they offer stand in them.
#pragma once

#include <string>

#include "cli/completion/command_model.h"

namespace ferry::cli {

/// A program for sh. It prints a line for each word that may stand in place of its last argument, with a
/// description after a tab. Without any argument it completes an empty one. In "--output=j" it replaces only
/// the part behind the '='. Options are offered where the word begins with '-', and where no command and no
/// positional may stand. The last line is a directive: ":4" nothing else, ":0" a file, ":16" a folder. ABI:
/// `ShellCompDirective` of Cobra; for a plugin kubectl-NAME, kubectl runs kubectl_complete-NAME with the
/// words behind the plugin's name (kubernetes.io/docs/tasks/extend-kubectl/kubectl-plugins).
std::string completion_program(const CommandModel& root);

/// The script of `ferry` for "bash", "zsh" or "fish".
std::string completion_script(const CommandModel& root, const std::string& shell);

}  // namespace ferry::cli
