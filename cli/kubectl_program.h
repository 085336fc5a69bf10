// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "cli/command_model.h"

namespace ferry {

/// True: the program is called `kubectl-ferry` (argv[0], with or without a path), as kubectl calls its
/// plugin.
bool is_kubectl_plugin(std::string_view name);

/// `kubectl ferry`: the GPUs of a whole cluster as its API server shows them. Changes nothing. Exit status:
/// 0; 1 the API server does not answer or refuses; 2 wrong usage, no such node, or `plan`: the desired state
/// is invalid; 4 `plan`: others serve the node.
int kubectl_program(int argc, char** argv);

/// The commands and options of `kubectl ferry`.
CommandModel kubectl_commands();

/// `kubectl_complete-ferry`: prints kubectl_completion() for the words on its command line.
int kubectl_completion_program(int argc, char** argv);

}  // namespace ferry
