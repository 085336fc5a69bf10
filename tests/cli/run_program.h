// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace ferry::test {

struct ProgramResult {
  int status = -1;  ///< exit status; -1: did not exit by itself
  std::string out;
  std::string err;
};

/// Runs `ferry` with these arguments to its end, as `user` if one is given (a number; needs root).
ProgramResult run_ferry(const std::vector<std::string>& arguments, unsigned user = 0);

/// Runs it on a terminal of its own, on which `typed` is typed, under another name if one is given. `out` is
/// all that the terminal shows.
ProgramResult run_ferry_on_terminal(const std::vector<std::string>& arguments, const std::string& typed,
                                    const std::string& name = {});

/// Runs it under another name, with `environment` ("NAME=value") alone.
ProgramResult run_ferry_as(const std::string& name, const std::vector<std::string>& arguments,
                           const std::vector<std::string>& environment = {});

/// Runs kubectl's plugin, which the build puts beside `ferry`, with `environment` alone. Where that has no
/// KUBECTL, `ferry-agent get` stands in for kubectl.
ProgramResult run_kubectl_ferry(const std::vector<std::string>& arguments,
                                const std::vector<std::string>& environment = {});

/// The same of another program that the build puts there.
ProgramResult run_beside_ferry(const std::string& name, const std::vector<std::string>& arguments,
                               const std::vector<std::string>& environment = {});

/// `ferry` under another name, until a signal ends it. What it prints goes to the file `into`, or nowhere.
class RunningProgram {
 public:
  RunningProgram(const std::string& name, const std::vector<std::string>& arguments,
                 std::vector<std::string> environment = {}, const std::filesystem::path& into = {});
  RunningProgram(const RunningProgram&) = delete;
  RunningProgram& operator=(const RunningProgram&) = delete;
  RunningProgram(RunningProgram&&) = delete;
  RunningProgram& operator=(RunningProgram&&) = delete;
  ~RunningProgram();  ///< kills it

  int pid() const { return pid_; }
  /// Whether `there` comes to be true while it runs; half a minute at most.
  bool until(const std::function<bool()>& there);
  /// Sends a signal and waits for the end. The exit status; -1: did not exit by itself.
  int end_by(int signal);

 private:
  int pid_ = -1;
};

/// Runs `ferry` with its streams as a shell would have them: ">/dev/full", "2>&-".
ProgramResult run_ferry_redirected(const std::string& redirections,
                                   const std::vector<std::string>& arguments);

}  // namespace ferry::test
