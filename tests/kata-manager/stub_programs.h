// SPDX-License-Identifier: Apache-2.0
// Programs of a host that are only asked something, as a test has them answer.
#pragma once

#include <cerrno>
#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tests/kata-manager/predicted_daemon.h"

namespace ferry::test {

class StubPrograms final : public ModuleWriter {
 public:
  /// Its arguments, to what it prints.
  using Program = std::function<Result<std::string>(const std::vector<std::string>& arguments)>;

  Result<std::string> output(const HostCommand& command, std::chrono::milliseconds /*deadline*/) override {
    asked.push_back(command.text());
    const auto found = programs.find(command.words.front());
    if (found == programs.end()) return fail(error_from_errno(ENOENT, "run " + command.text()));
    return found->second({command.words.begin() + 1, command.words.end()});
  }

  std::map<std::string, Program> programs;
  std::vector<std::string> asked;
};

/// A containerd that only says its release.
inline StubPrograms::Program containerd_of(const std::string& release) {
  return [release](const std::vector<std::string>& arguments) -> Result<std::string> {
    if (arguments != std::vector<std::string>{"--version"}) return fail(Errc::failed, "it ends with 1");
    return "containerd github.com/containerd/containerd " + release + " abcdef\n";
  };
}

}  // namespace ferry::test
