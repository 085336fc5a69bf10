// SPDX-License-Identifier: Apache-2.0
// Who may still need Kata's configuration of a class that leaves: a shim opens it, and what it leads to,
// whenever it makes a sandbox, and a VM runs on it for as long as it lives, whether the container runtime
// runs and knows of it or not. And who runs with a handler that leaves: without it the container runtime
// cannot end a pod in order.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <sys/types.h>
#include <vector>

#include "common/host_fs.h"
#include "common/result.h"
#include "kata-manager/container_runtime.h"

namespace ferry {

/// The runtimes that it knows with the configuration of one of these classes, whoever's file says so.
std::vector<std::string> runtimes_of_classes(const RuntimeState& state, std::span<const std::string> classes);

/// Kata's shims that run, one for each sandbox; also of one that is just being made, which the container
/// runtime does not list yet. They are known by their name, containerd-shim-kata...
struct KataShims {
  std::map<std::string, pid_t> by_sandbox;  ///< of one that does not say for which: ""
  bool any_process = false;                 ///< false: nothing runs on this host, or its proc is not here
};
/// Errors: those of reading proc; that there is none is none.
Result<KataShims> kata_shims(const HostFs& host);

struct LeavingClasses {
  std::vector<std::string> classes;  ///< whose files go
  /// Of theirs, as far as anybody knows; and those that go alone, from a class that stays.
  std::vector<std::string> handlers;
  /// Which are none of theirs. It matters where the runtime does not tell what its runtimes are made of.
  std::vector<std::string> others;
};

/// Why they cannot go now; absent: nobody has them, or there are none. `state`: what the runtime has just
/// said; absent: it does not run.
/// - A pod runs with one of their runtimes.
/// - A shim of Kata's runs for a pod whose runtime is not known, any more perhaps; or for no pod.
/// Errors: as ContainerRuntime::pods() and kata_shims(); Errc::unsupported, the runtime runs, classes go and
/// no process is to be seen.
Result<std::optional<std::string>> who_has(const HostFs& host, ContainerRuntime& runtime,
                                           const std::optional<RuntimeState>& state,
                                           const LeavingClasses& leaving);

}  // namespace ferry
