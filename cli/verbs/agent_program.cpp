// SPDX-License-Identifier: Apache-2.0
#include "cli/verbs/agent_program.h"

#include <cerrno>
#include <filesystem>
#include <sys/mman.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "common/unique_fd.h"

namespace ferry::cli {
namespace {

// Input goes into a memfd: a pipe without a reader would block as soon as it is full.
Result<> replace_input(const std::string& input) {
  const UniqueFd file(::memfd_create("input", MFD_CLOEXEC));
  if (!file.valid()) return fail(error_from_errno(errno, "make a file in memory"));
  for (std::size_t done = 0; done < input.size();) {
    const ssize_t count = ::write(file.get(), input.data() + done, input.size() - done);
    if (count < 0) return fail(error_from_errno(errno, "write to a file in memory"));
    done += static_cast<std::size_t>(count);
  }
  if (::lseek(file.get(), 0, SEEK_SET) < 0 || ::dup2(file.get(), STDIN_FILENO) < 0)
    return fail(error_from_errno(errno, "replace standard input"));
  return {};
}

}  // namespace

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

Error become_agent_program(std::vector<std::string> arguments, const std::string& input) {
  if (!input.empty()) {
    if (auto replaced = replace_input(input); !replaced) return replaced.error();
  }
  return become_program("ferry-agent", std::move(arguments));
}

}  // namespace ferry::cli
