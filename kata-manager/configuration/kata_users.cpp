// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/configuration/kata_users.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "common/text/text.h"
#include "hostfs/processes.h"
#include "kata-manager/classes/class_file.h"
#include "kata-manager/configuration/kata_configuration.h"

namespace ferry::kata {
namespace {

bool is_shim(const std::filesystem::path& program) {
  return program.filename().native().starts_with(kKataShimPrefix);
}

bool is_over(const Error& error) {
  return is_gone(error) || error.code == std::errc::no_such_process;
}

bool contains(std::span<const std::string> names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

/// The sandbox of a process; absent: the process is not Kata's shim, or has ended.
Result<std::optional<std::string>> sandbox_of(const HostFs& host, pid_t pid) {
  const std::string process = std::to_string(pid);
  // The link `exe` comes first: cmdline needs a lock of the process, which a hanging process may hold.
  const auto program = host.link_target("proc/" + process + "/exe");
  if (program ? !is_shim(*program) : is_over(program.error())) return std::optional<std::string>();
  if (runs_below_another_root(host, pid, {"."})) return std::optional<std::string>();
  const auto words = words_between(command_line(host, pid), '\0');
  if (words.empty()) {
    const auto still = host.link_target("proc/" + process + "/exe");
    // A kernel thread, or a process that has ended and waits for its parent, has a link that leads nowhere.
    const bool has_no_program = !still && still.error().code == std::errc::invalid_argument;
    if (has_no_program || (!still && is_over(still.error()))) return std::optional<std::string>();
    if (!program) return fail(program.error());
  }
  if (!program && !is_shim(words.front())) return std::optional<std::string>();
  const auto flag =
      std::ranges::find_if(words, [](const std::string& word) { return word == "-id" || word == "--id"; });
  return flag == words.end() || flag + 1 == words.end() ? std::string() : *(flag + 1);
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

Result<KataShims> kata_shims(const HostFs& host) {
  KataShims out;
  const auto names = host.list("proc");
  if (!names && is_gone(names.error())) return out;
  if (!names) return fail(names.error());
  for (const std::string& name : *names) {
    const auto pid = whole_number<pid_t>(name);
    if (!pid) continue;
    out.any_process = true;
    auto sandbox = sandbox_of(host, *pid);
    if (!sandbox) return fail(std::move(sandbox).error());
    if (auto& of = *sandbox) out.by_sandbox.emplace(std::move(*of), *pid);
  }
  return out;
}

Result<std::optional<std::string>> who_has(const HostFs& host, ContainerRuntime& runtime,
                                           const std::optional<RuntimeState>& state,
                                           const LeavingClasses& leaving) {
  if (leaving.classes.empty() && leaving.handlers.empty()) return std::optional<std::string>();
  auto shims = kata_shims(host);
  if (!shims) return fail(std::move(shims).error().during("look for Kata's shims"));
  // Leaving handlers alone take no file from a VM, so the runtime's list of pods is enough.
  if (state && !shims->any_process && !leaving.classes.empty())
    return fail(Errc::unsupported,
                "Kata's shims cannot be looked for: there is no process in the host's /proc",
                "mount the host's /proc below the root that is given");
  std::vector<std::string> users;
  if (state) {
    auto pods = runtime.pods();
    if (!pods) return fail(std::move(pods).error().during("who runs with the runtimes is not known"));
    std::vector<std::string> theirs = runtimes_of_classes(*state, leaving.classes);
    for (const auto* const more : {&leaving.handlers, &leaving.classes})
      theirs.insert(theirs.end(), more->begin(), more->end());
    for (const RunningPod& pod : *pods) {
      const bool has_shim = shims->by_sandbox.erase(pod.sandbox) != 0;
      const bool known = state->runtimes ? state->has(pod.handler) : contains(leaving.others, pod.handler);
      // A runtime that is not known may be a leaving one.
      if (contains(theirs, pod.handler) || (has_shim && !known)) users.push_back(text(pod));
    }
  }
  for (const auto& [sandbox, pid] : shims->by_sandbox)
    users.push_back(
        fmt::format("process {}, Kata's shim{}{}", pid, sandbox.empty() ? "" : " of the sandbox ", sandbox));
  if (users.empty()) return std::optional<std::string>();
  return fmt::format("{}", fmt::join(users, ", "));
}

}  // namespace ferry::kata
