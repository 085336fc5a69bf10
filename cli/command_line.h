// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/command_model.h"

namespace ferry {

/// Parses the command line, runs the verb, gives the process's exit status (common/exit_status.h).
int run_command_line(int argc, char** argv);

/// What it parses.
CommandModel ferry_commands();

}  // namespace ferry
