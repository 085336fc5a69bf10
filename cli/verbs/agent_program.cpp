// SPDX-License-Identifier: Apache-2.0
#include "cli/verbs/agent_program.h"

#include <cerrno>
#include <unistd.h>

#include "common/process/spawn.h"

namespace ferry::cli {

Error become_program(const std::string& name, std::vector<std::string> arguments) {
  const auto folder = program_folder();
  if (!folder) return folder.error();
  const auto program = *folder / name;
  arguments.insert(arguments.begin(), name);
  const std::vector<char*> words = pointers_to(arguments);
  ::execv(program.c_str(), words.data());
  Error error = error_from_errno(errno, "start " + program.string());
  error.hint = "install the package ferry again: it has " + name + " in the same folder as ferry";
  return error;
}

}  // namespace ferry::cli
