// SPDX-License-Identifier: Apache-2.0
#include "tests/cli/run_program.h"

#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <fstream>
#include <iterator>
#include <optional>
#include <pty.h>
#include <string_view>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include "common/unique_fd.h"
#include "tests/support/scratch_directory.h"

namespace ferry::test {
namespace {

std::string content(const std::filesystem::path& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> out;
  out.reserve(words.size() + 1);
  for (std::string& word : words) out.push_back(word.data());
  out.push_back(nullptr);
  return out;
}

/// Our own, but in no language that whoever runs the tests may have.
std::vector<std::string> own_environment() {
  std::vector<std::string> out = {"LC_ALL=C"};
  for (char** one = environ; *one != nullptr; ++one)
    if (!std::string_view(*one).starts_with("LC_ALL=")) out.emplace_back(*one);
  return out;
}

/// `words` are argv, from argv[0] on.
ProgramResult run(std::vector<std::string> words, std::optional<std::vector<std::string>> environment,
                  unsigned user, const std::string& program = FERRY_PROGRAM) {
  const ScratchDirectory scratch;
  const auto out = scratch.path() / "out";
  const auto err = scratch.path() / "err";
  const auto argv = pointers(words);
  if (!environment) environment = own_environment();
  // All memory before the fork: another thread of ours may hold the allocator's lock, and then for good.
  const auto envp = pointers(*environment);

  const pid_t child = ::fork();
  if (child == 0) {
    const int null = ::open("/dev/null", O_RDONLY);
    const int o = ::open(out.c_str(), O_WRONLY | O_CREAT, 0600);
    const int e = ::open(err.c_str(), O_WRONLY | O_CREAT, 0600);
    if (null < 0 || o < 0 || e < 0 || ::dup2(null, 0) < 0 || ::dup2(o, 1) < 0 || ::dup2(e, 2) < 0)
      ::_exit(126);
    if (user != 0 && ::setuid(user) != 0) ::_exit(126);
    ::execve(program.c_str(), argv.data(), envp.data());
    ::_exit(127);
  }
  ProgramResult result;
  int status = 0;
  if (child > 0 && ::waitpid(child, &status, 0) == child && WIFEXITED(status))
    result.status = WEXITSTATUS(status);
  result.out = content(out);
  result.err = content(err);
  return result;
}

}  // namespace

ProgramResult run_ferry(const std::vector<std::string>& arguments, unsigned user) {
  std::vector<std::string> words = {FERRY_PROGRAM};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return run(std::move(words), std::nullopt, user);
}

ProgramResult run_ferry_on_terminal(const std::vector<std::string>& arguments, const std::string& typed,
                                    const std::string& name) {
  std::vector<std::string> words = {name.empty() ? FERRY_PROGRAM : name};
  words.insert(words.end(), arguments.begin(), arguments.end());
  const auto argv = pointers(words);
  std::vector<std::string> environment = own_environment();
  const auto envp = pointers(environment);
  int screen = -1;
  const pid_t child = ::forkpty(&screen, nullptr, nullptr, nullptr);
  if (child == 0) {
    ::execve(FERRY_PROGRAM, argv.data(), envp.data());
    ::_exit(127);
  }
  const UniqueFd owned(screen);
  ProgramResult result;
  if (child < 0 || ::write(screen, typed.data(), typed.size()) < 0) return result;
  std::array<char, 4096> some{};
  // The read fails once the program has closed the terminal.
  for (ssize_t count = 0; (count = ::read(screen, some.data(), some.size())) > 0;)
    result.out.append(some.data(), static_cast<std::size_t>(count));
  int status = 0;
  if (::waitpid(child, &status, 0) == child && WIFEXITED(status)) result.status = WEXITSTATUS(status);
  return result;
}

ProgramResult run_ferry_as(const std::string& name, const std::vector<std::string>& arguments,
                           const std::vector<std::string>& environment) {
  std::vector<std::string> words = {name};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return run(std::move(words), environment, 0);
}

ProgramResult run_kubectl_ferry(const std::vector<std::string>& arguments,
                                const std::vector<std::string>& environment) {
  return run_beside_ferry("kubectl-ferry", arguments, environment);
}

ProgramResult run_beside_ferry(const std::string& name, const std::vector<std::string>& arguments,
                               const std::vector<std::string>& environment) {
  const auto folder = std::filesystem::path(FERRY_PROGRAM).parent_path();
  std::vector<std::string> words = {name};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<std::string> variables = {"KUBECTL=" + (folder / "ferry-agent").string()};
  for (const std::string& variable : environment)
    variable.starts_with("KUBECTL=") ? variables.front() = variable : variables.emplace_back(variable);
  return run(std::move(words), variables, 0, (folder / name).string());
}

RunningProgram::RunningProgram(const std::string& name, const std::vector<std::string>& arguments,
                               std::vector<std::string> environment, const std::filesystem::path& into) {
  std::vector<std::string> words = {name};
  words.insert(words.end(), arguments.begin(), arguments.end());
  const auto argv = pointers(words);
  const auto envp = pointers(environment);
  const std::filesystem::path program = FERRY_PROGRAM;
  pid_ = ::fork();
  if (pid_ != 0) return;
  const int null = ::open("/dev/null", O_RDWR);
  const int out = into.empty() ? null : ::open(into.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (null < 0 || out < 0 || ::dup2(null, 0) < 0 || ::dup2(out, 1) < 0 || ::dup2(null, 2) < 0) ::_exit(126);
  ::execve(program.c_str(), argv.data(), envp.data());
  ::_exit(127);
}

RunningProgram::~RunningProgram() {
  if (pid_ > 0) end_by(SIGKILL);
}

bool RunningProgram::until(const std::function<bool()>& there) {
  constexpr std::chrono::seconds kPatience{30};
  constexpr std::chrono::milliseconds kPollPeriod{5};
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (!there()) {
    siginfo_t ended{};
    if (::waitid(P_PID, static_cast<id_t>(pid_), &ended, WEXITED | WNOHANG | WNOWAIT) != 0 ||
        ended.si_pid != 0 || std::chrono::steady_clock::now() > end)
      return false;
    std::this_thread::sleep_for(kPollPeriod);
  }
  return true;
}

int RunningProgram::end_by(int signal) {
  int status = 0;
  ::kill(pid_, signal);
  const bool reaped = ::waitpid(std::exchange(pid_, -1), &status, 0) > 0;
  return reaped && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

ProgramResult run_ferry_redirected(const std::string& redirections,
                                   const std::vector<std::string>& arguments) {
  std::vector<std::string> words = {"/bin/sh", "-c", R"(exec "$0" "$@" )" + redirections, FERRY_PROGRAM};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return run(std::move(words), std::nullopt, 0, "/bin/sh");
}

}  // namespace ferry::test
