// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/command_model.h"

namespace ferry {

/// Parses the command line, runs the verb and returns the exit status (common/exit_status.h).
int run_command_line(int argc, char** argv);

/// The commands and options that run_command_line() parses.
CommandModel ferry_commands();

}  // namespace ferry
