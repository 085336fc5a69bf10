// SPDX-License-Identifier: Apache-2.0
// Who may still need Kata's configuration of a class that leaves: a shim opens it, and what it leads to,
// whenever it makes a sandbox, and a VM runs on it for as long as it lives, whether the container runtime
// runs and knows of it or not.
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

/// Kata's shims that run, one for each sandbox: its ID, and the process. Also of a sandbox that is just being
/// made, which the container runtime does not list yet. Errors: those of listing proc; that there is none is
/// none, and nothing runs there.
Result<std::map<std::string, pid_t>> kata_shims(const HostFs& host);

/// Why these classes cannot go now; absent: nobody has them. `state`: what the runtime has just said; absent:
/// it does not run. `handlers`: runtimes of the classes that are known otherwise.
/// - A pod runs with one of their runtimes; or with one that the container runtime does not know any more,
///   which may have been one of theirs.
/// - A shim of Kata's runs for a sandbox that is no such pod's.
/// Errors: as ContainerRuntime::pods() and kata_shims().
Result<std::optional<std::string>> who_has(const HostFs& host, ContainerRuntime& runtime,
                                           const std::optional<RuntimeState>& state,
                                           std::span<const std::string> classes,
                                           std::span<const std::string> handlers);

}  // namespace ferry
