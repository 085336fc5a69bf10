// SPDX-License-Identifier: Apache-2.0
// Completion of `kubectl ferry` by kubectl's own: of a plugin kubectl-NAME it asks the program
// kubectl_complete-NAME, with the words behind the plugin's name, the last one being what is typed
// (kubernetes.io/docs/tasks/extend-kubectl/ kubectl-plugins; what is printed is what programs made with Cobra
// print).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/command_model.h"

namespace ferry {

/// Whether a program is called `kubectl_complete-ferry` (argv[0], with or without a path).
bool is_kubectl_completion(std::string_view name);

/// A line for each word that may stand in the place of the last of `words`, with what it is behind a tab;
/// then the directive: ":4" nothing else is meant, ":0" a file, ":16" a folder. It runs no program and asks
/// no server.
std::string kubectl_completion(const CommandModel& root, const std::vector<std::string>& words);

}  // namespace ferry
