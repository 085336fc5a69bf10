// SPDX-License-Identifier: Apache-2.0
// The running container runtime, as it says of itself. What its files say and what it has read of them may be
// two things: it reads them when it starts.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/result.h"
#include "kata-manager/runtime_handler.h"

namespace ferry {

/// A runtime that it knows.
struct KnownRuntime {
  std::string name;
  std::string type;           ///< "io.containerd.runc.v2"
  std::string shim;           ///< empty: looked for by the type
  std::string configuration;  ///< `ConfigPath` of its options; empty: it has none
  // Absent: it does not say.
  std::optional<std::string> snapshotter = {};  ///< empty: its own choice
  std::optional<std::vector<std::string>> pod_annotations = {};
  std::optional<std::vector<std::string>> container_annotations = {};
  bool operator==(const KnownRuntime&) const = default;
};

struct RuntimeState {
  std::string name;     ///< "containerd", "cri-o"
  std::string version;  ///< "1.7.24"
  /// Names of what a RuntimeClass may ask for; absent: it does not list them (containerd before 2.0).
  std::optional<std::vector<std::string>> handlers;
  /// Its runtimes as its configuration has them; absent: it does not tell (CRI-O).
  std::optional<std::vector<KnownRuntime>> runtimes;

  /// Whether it says anything of its runtimes; the two below are only then of use.
  bool tells() const { return handlers || runtimes; }
  /// Whether a pod that asks for a runtime that it knows gets that one's shim, and not whatever it finds by
  /// the runtime's type (ContainerdRelease::starts_shims_by_path()).
  bool starts_shim_of(const KnownRuntime& known) const;
  /// Whether it has read of a runtime as we would have it, as far as it tells: shim, configuration,
  /// snapshotter, and which annotations it lets through.
  bool knows(const RuntimeHandler& handler) const;
  /// Whether it has a runtime of that name at all.
  bool has(const std::string& handler) const;
};

/// A pod that runs.
struct RunningPod {
  std::string name_space;
  std::string name;
  std::string handler;  ///< empty: the default runtime
  std::string sandbox;  ///< its ID
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

  /// Errors: Errc::not_found, nobody listens: it does not run; Errc::unreachable, it does not answer in time;
  /// Errc::failed, it answers with an error (it is still starting, or CRI could not be loaded);
  /// Errc::malformed_host, its answer cannot be read.
  virtual Result<RuntimeState> state() = 0;
  /// Pods whose sandbox is ready. Errors as above.
  virtual Result<std::vector<RunningPod>> pods() = 0;
};

}  // namespace ferry
