// SPDX-License-Identifier: Apache-2.0
#include "cli/verbs/agent_program.h"

#include <cerrno>
#include <filesystem>
#include <system_error>
#include <unistd.h>

namespace ferry::cli {

Error become_program(const std::string& name, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), name);
  std::vector<char*> argv;
  argv.reserve(arguments.size() + 1);
  for (std::string& word : arguments) argv.push_back(word.data());
  argv.push_back(nullptr);
  std::error_code failure;
  const auto own = std::filesystem::read_symlink("/proc/self/exe", failure);
  const auto program = own.parent_path() / name;
  if (!failure) ::execv(program.c_str(), argv.data());
  Error error = error_from_errno(failure ? failure.value() : errno, "start " + program.string());
  error.hint = "install the package ferry again: it has " + name + " in the same folder as ferry";
  return error;
}

}  // namespace ferry::cli
