// SPDX-License-Identifier: Apache-2.0
// A Kata runtime in containerd's or CRI-O's configuration.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "kata-manager/containerd/containerd_release.h"

namespace ferry::kata {

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
  bool told_by_path = false;
  bool operator==(const RuntimeHandler&) const = default;

  /// "io.containerd.NAME.v2": its own type, so that metrics distinguish handlers.
  std::string type_by_name() const { return "io.containerd." + name + ".v2"; }
  /// containerd's `runtime_type`: type_by_name(), or the shim's path if the release would look for a
  /// program by the type's name.
  std::string runtime_type(const ContainerdRelease& release) const {
    return release.starts_shims_by_path() && !told_by_path ? type_by_name() : shim.string();
  }
  /// True: a pod gets the shim by this type. The path works with every release.
  bool may_have_type(std::string_view type, const ContainerdRelease& release) const {
    return type == shim.string() || type == runtime_type(release);
  }
};

/// The folder of the classes' configurations. A file below it is Ferry's.
inline constexpr const char* kKataConfigurations = "/etc/ferry/kata";
bool is_configuration_of_ferry(const std::filesystem::path& path);

/// True for a DNS label (RFC 1123): at most 63 lower case letters, digits and inner dashes. Such a name is
/// a plain TOML key and the name of a Kubernetes object.
bool is_handler_name(std::string_view name);

}  // namespace ferry::kata
