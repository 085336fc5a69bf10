// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/kata_users.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "kata-manager/kata_configuration.h"

namespace ferry {
namespace {

// As containerd and CRI-O find it by the runtime's type; a path that is given leads to one of that name too.
constexpr std::string_view kShim = "containerd-shim-kata";

/// The argument behind "-id" of a shim's command line; absent: it is none of Kata's.
std::optional<std::string> sandbox_of(std::string_view command_line) {
  std::vector<std::string_view> words;
  while (!command_line.empty()) {
    const auto end = std::min(command_line.find('\0'), command_line.size());
    words.push_back(command_line.substr(0, end));
    command_line.remove_prefix(std::min(end + 1, command_line.size()));
  }
  if (words.empty() || !std::filesystem::path(words.front()).filename().native().starts_with(kShim))
    return std::nullopt;
  const auto flag =
      std::ranges::find_if(words, [](std::string_view word) { return word == "-id" || word == "--id"; });
  if (flag == words.end() || flag + 1 == words.end()) return std::string();
  return std::string(*(flag + 1));
}

}  // namespace

std::vector<std::string> runtimes_of_classes(const RuntimeState& state,
                                             std::span<const std::string> classes) {
  std::vector<std::string> out;
  if (!state.runtimes) return out;
  for (const KnownRuntime& runtime : *state.runtimes) {
    const auto has = [&](const std::string& name) {
      return runtime.configuration.starts_with(kata_configuration_folder(name).string() + "/");
    };
    if (std::ranges::any_of(classes, has)) out.push_back(runtime.name);
  }
  return out;
}

Result<std::map<std::string, pid_t>> kata_shims(const HostFs& host) {
  std::map<std::string, pid_t> out;
  const auto names = host.list("proc");
  if (!names && is_gone(names.error())) return out;
  if (!names) return fail(Error(names.error()));
  for (const std::string& name : *names) {
    pid_t pid = 0;
    const auto read = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (read.ec != std::errc() || read.ptr != name.data() + name.size()) continue;
    const auto command_line = host.read_file("proc/" + name + "/cmdline");  // gone meanwhile: not there
    if (const auto sandbox = sandbox_of(command_line.value_or(""))) out.emplace(*sandbox, pid);
  }
  return out;
}

Result<std::optional<std::string>> who_has(const HostFs& host, ContainerRuntime& runtime,
                                           const std::optional<RuntimeState>& state,
                                           std::span<const std::string> classes,
                                           std::span<const std::string> handlers) {
  if (classes.empty()) return std::optional<std::string>();
  auto shims = kata_shims(host);
  if (!shims) return fail(std::move(shims).error().during("look for Kata's shims"));
  std::vector<std::string> users;
  if (state) {
    auto pods = runtime.pods();
    if (!pods) return fail(std::move(pods).error().during("who runs with the runtimes is not known"));
    std::vector<std::string> theirs = runtimes_of_classes(*state, classes);
    theirs.insert(theirs.end(), handlers.begin(), handlers.end());
    for (const RunningPod& pod : *pods) {
      shims->erase(pod.sandbox);
      const bool forgotten = !pod.handler.empty() && state->tells() && !state->has(pod.handler);
      if (forgotten || std::ranges::find(theirs, pod.handler) != theirs.end()) users.push_back(text(pod));
    }
  }
  for (const auto& [sandbox, pid] : *shims)
    users.push_back(
        fmt::format("process {}, Kata's shim{}{}", pid, sandbox.empty() ? "" : " of the sandbox ", sandbox));
  if (users.empty()) return std::optional<std::string>();
  return fmt::format("{}", fmt::join(users, ", "));
}

}  // namespace ferry
