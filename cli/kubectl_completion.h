// SPDX-License-Identifier: Apache-2.0
// Completion of `kubectl ferry` through kubectl's own. For a plugin kubectl-NAME it runs
// kubectl_complete-NAME with the words after the plugin's name; the last is the one being typed. ABI:
// kubernetes.io/docs/tasks/extend-kubectl/kubectl-plugins; the output is that of programs made with Cobra.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/command_model.h"

namespace ferry {

/// True: the program is called `kubectl_complete-ferry` (argv[0], with or without a path).
bool is_kubectl_completion(std::string_view name);

/// A line for each word that may replace the last of `words`, with its description after a tab. The last line
/// is the directive: ":4" nothing else, ":0" a file, ":16" a folder. It runs no program and asks no server.
std::string kubectl_completion(const CommandModel& root, const std::vector<std::string>& words);

}  // namespace ferry
