// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/completion/command_model.h"
#include "cli/output/help_text.h"

namespace ferry::cli {

/// Parses the command line, runs the verb and returns the exit status (common/exit_status.h).
int run_command_line(int argc, char** argv);

/// The frame of each command's help: the examples of all commands, in the order of the help text, and the
/// exit statuses. The manual pages have the same examples.
HelpFrame help_frame();

/// The commands and options that run_command_line() parses.
CommandModel ferry_commands();

}  // namespace ferry::cli
