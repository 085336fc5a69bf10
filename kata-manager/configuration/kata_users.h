// SPDX-License-Identifier: Apache-2.0
// Finds users of Kata's configuration of a leaving class. A shim opens the configuration and its files when
// it makes a sandbox. A VM needs them as long as it lives, even if the container runtime is down. Also
// finds pods of a leaving handler: without it the container runtime cannot end a pod properly.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <sys/types.h>
#include <vector>

#include "common/result.h"
#include "hostfs/host_fs.h"
#include "kata-manager/runtimes/container_runtime.h"

namespace ferry::kata {

/// Runtimes whose configuration is that of one of these classes, whichever file defines them.
std::vector<std::string> runtimes_of_classes(const RuntimeState& state, std::span<const std::string> classes);

/// Kata's running shims, one for each sandbox, known by their name containerd-shim-kata... A sandbox that
/// is being made has a shim before the container runtime lists it.
struct KataShims {
  std::map<std::string, pid_t> by_sandbox;  ///< key "": the shim names no sandbox
  bool any_process = false;                 ///< false: no process runs on this host, or its /proc is missing
};
/// Errors: read errors of /proc. A missing /proc is no error.
Result<KataShims> kata_shims(const HostFs& host);

struct LeavingClasses {
  std::vector<std::string> classes;  ///< classes whose files go
  /// Handlers of `classes`, as far as known, and single handlers that leave a class that stays.
  std::vector<std::string> handlers;
  /// Handlers of other classes. Needed if the runtime does not report its runtimes' configurations.
  std::vector<std::string> others;
};

/// Why classes and handlers cannot go now; absent: they have no users, or nothing leaves. `state`: the
/// runtime's latest answer; absent: the runtime does not run. Users are:
///  - a pod that runs with one of their runtimes;
///  - Kata's shim for a pod of unknown runtime, or for no pod.
/// Errors: as ContainerRuntime::pods() and kata_shims(); Errc::unsupported: the runtime runs, classes
/// leave, and /proc shows no process.
Result<std::optional<std::string>> who_has(const HostFs& host, ContainerRuntime& runtime,
                                           const std::optional<RuntimeState>& state,
                                           const LeavingClasses& leaving);

}  // namespace ferry::kata
