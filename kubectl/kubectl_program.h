// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/completion/command_model.h"

namespace ferry::kubectl {

/// `kubectl ferry`: the GPUs of a whole cluster as its API server shows them. Changes nothing. Exit status:
/// 0; 1 the API server does not answer or refuses; 2 wrong usage, no such node, or `plan`: the desired state
/// is invalid; 4 `plan`: others serve the node.
int kubectl_program(int argc, char** argv);

/// The commands and options of `kubectl ferry`.
cli::CommandModel kubectl_commands();

}  // namespace ferry::kubectl
