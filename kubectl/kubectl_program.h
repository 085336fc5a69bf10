// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "cli/completion/completion.h"

namespace ferry::kubectl {

/// `kubectl ferry`: the GPUs of a whole cluster as its API server shows them. Changes nothing. Exit status:
/// 0; 1 the API server does not answer or refuses; 2 wrong usage, no such node, or `plan`: the desired state
/// is invalid; 4 `plan`: others serve the node.
int kubectl_program(int argc, char** argv);

/// The commands and options of `kubectl ferry`.
cli::CommandModel kubectl_commands();

// Completion of `kubectl ferry` through kubectl's own. For a plugin kubectl-NAME it runs
// kubectl_complete-NAME with the words after the plugin's name; the last is the one being typed. ABI:
// kubernetes.io/docs/tasks/extend-kubectl/kubectl-plugins; the output is that of programs made with Cobra.

/// True: the program is called `kubectl_complete-ferry` (argv[0], with or without a path).
bool is_kubectl_completion(std::string_view name);

/// Names of a cluster's objects that a word may be.
struct NameQuestion {
  enum class Kind {
    nodes,
    vms,  ///< "NAMESPACE/NAME" of VirtualMachineInstances
  };
  Kind kind = Kind::nodes;
  std::map<std::string, std::string> options = {};  ///< of the command line, by name: "--context"
};
/// Returns the names; none if they are not known.
using AskForNames = std::function<std::vector<std::string>(const NameQuestion&)>;

/// cli::completions() of `kubectl ferry`. `ask` runs only if the name of an object may stand in that place.
std::string kubectl_completion(const cli::CommandModel& root, const std::vector<std::string>& words,
                               const AskForNames& ask);

/// `kubectl_complete-ferry`: prints kubectl_completion() for the words on its command line.
int kubectl_completion_program(int argc, char** argv);

}  // namespace ferry::kubectl
