// SPDX-License-Identifier: Apache-2.0
// The running container runtime, by its own answers. The answers may differ from the daemon's files, which it
// reads only when it starts.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/result.h"
#include "kata-manager/classes/runtime_handler.h"

namespace ferry::kata {

/// A runtime in the daemon's configuration.
struct KnownRuntime {
  std::string name;
  std::string type;           ///< "io.containerd.runc.v2"
  std::string shim;           ///< empty: found by the type
  std::string configuration;  ///< `ConfigPath` of its options; empty: none
  // Absent: not reported.
  std::optional<std::string> snapshotter = {};  ///< empty: the daemon's default
  std::optional<std::vector<std::string>> pod_annotations = {};
  std::optional<std::vector<std::string>> container_annotations = {};
  bool operator==(const KnownRuntime&) const = default;
};

struct RuntimeState {
  std::string name;     ///< "containerd", "cri-o"
  std::string version;  ///< "1.7.24"
  /// Handler names for RuntimeClasses; absent: not listed (containerd before 2.0).
  std::optional<std::vector<std::string>> handlers;
  /// The daemon's configured runtimes; absent: not reported (CRI-O).
  std::optional<std::vector<KnownRuntime>> runtimes;

  /// True: the daemon reports its runtimes. The two functions below need that.
  bool tells() const { return handlers || runtimes; }
  /// True: a pod gets the shim of this runtime, and not a program found by its type
  /// (ContainerdRelease::starts_shims_by_path()).
  bool starts_shim_of(const KnownRuntime& known) const;
  /// True: the daemon has the handler as Ferry writes it, as far as reported: shim, configuration,
  /// snapshotter, passed annotations.
  bool knows(const RuntimeHandler& handler) const;
  /// True: the daemon has a runtime of that name.
  bool has(const std::string& handler) const;
};

/// A running pod.
struct RunningPod {
  std::string name_space;
  std::string name;
  std::string handler;  ///< empty: the default runtime
  std::string sandbox;  ///< the sandbox's ID
  bool operator==(const RunningPod&) const = default;
};

/// "kube-system/web-1 (kata-nvidia-gpu)"
std::string text(const RunningPod& pod);

class ContainerRuntime {
 public:
  ContainerRuntime() = default;
  ContainerRuntime(const ContainerRuntime&) = delete;
  ContainerRuntime& operator=(const ContainerRuntime&) = delete;
  ContainerRuntime(ContainerRuntime&&) = delete;
  ContainerRuntime& operator=(ContainerRuntime&&) = delete;
  virtual ~ContainerRuntime() = default;

  /// Errors: Errc::not_found: the socket has no listener, so the runtime does not run; Errc::unreachable:
  /// no answer in time; Errc::failed: an error answer (it still starts, or CRI did not load);
  /// Errc::malformed_host: an unreadable answer.
  virtual Result<RuntimeState> state() = 0;
  /// Pods whose sandbox is ready. Errors: as state().
  virtual Result<std::vector<RunningPod>> pods() = 0;
};

}  // namespace ferry::kata
