// SPDX-License-Identifier: Apache-2.0
// The running container runtime, by its own answers. The answers may differ from the daemon's files, which it
// reads only when it starts.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/pinned.h"
#include "common/result.h"
#include "kata-manager/runtimes/containerd_release.h"

namespace ferry::kata {

// A Kata runtime in containerd's or CRI-O's configuration.

struct RuntimeHandler {
  /// The handler in a RuntimeClass: is_handler_name().
  std::string name;
  std::filesystem::path shim;                   ///< the program that runs a pod's VM, on the host
  std::filesystem::path configuration;          ///< Kata's configuration file, on the host
  std::optional<std::string> snapshotter = {};  ///< absent: the daemon's default
  /// Patterns of Go's path.Match for annotations of pods and containers that reach the shim.
  std::vector<std::string> pod_annotations = {"io.katacontainers.*", "cdi.k8s.io/*"};
  std::vector<std::string> container_annotations = {"io.kubernetes.container.terminationMessage*"};
  /// containerd's `runtime_type` is the shim's path already, and stays so.
  bool configured_by_path = false;
  bool operator==(const RuntimeHandler&) const = default;

  /// "io.containerd.NAME.v2": its own type, so that metrics distinguish handlers.
  std::string type_by_name() const { return "io.containerd." + name + ".v2"; }
  /// containerd's `runtime_type`: type_by_name(), or the shim's path if the release would look for a
  /// program by the type's name.
  std::string runtime_type(const ContainerdRelease& release) const {
    return release.starts_shims_by_path() && !configured_by_path ? type_by_name() : shim.string();
  }
  /// True: a pod gets the shim by this type. The path works with every release.
  bool may_have_type(std::string_view type, const ContainerdRelease& release) const {
    return type == shim.string() || type == runtime_type(release);
  }
};

/// True: the path leads to an entry below the folder. Both are normal; no link is followed.
bool is_below(const std::filesystem::path& path, const std::filesystem::path& folder);

/// The folder of the classes' configurations. A file below it is Ferry's.
inline constexpr const char* kKataConfigurations = "/etc/ferry/kata";
bool is_configuration_of_ferry(const std::filesystem::path& path);

/// True for a DNS label (RFC 1123): at most 63 lower case letters, digits and inner dashes. Such a name is
/// a plain TOML key and the name of a Kubernetes object.
bool is_handler_name(std::string_view name);

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
  bool reports_handlers() const { return handlers || runtimes; }
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

class ContainerRuntime : Pinned {
 public:
  virtual ~ContainerRuntime() = default;

  /// Errors: Errc::not_found: the socket has no listener, so the runtime does not run; Errc::unreachable:
  /// no answer in time; Errc::failed: an error answer (it still starts); Errc::unsupported: it runs without
  /// CRI, and the message has its reason; Errc::malformed_host: an unreadable answer.
  virtual Result<RuntimeState> state() = 0;
  /// Pods whose sandbox is ready. Errors: as state().
  virtual Result<std::vector<RunningPod>> pods() = 0;
};

}  // namespace ferry::kata
