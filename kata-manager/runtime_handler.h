// SPDX-License-Identifier: Apache-2.0
// A Kata runtime as containerd's or CRI-O's configuration has it.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "kata-manager/containerd_release.h"

namespace ferry {

struct RuntimeHandler {
  /// What a RuntimeClass names: is_handler_name().
  std::string name;
  std::filesystem::path shim;                   ///< the program that runs a pod's VM, on the host
  std::filesystem::path configuration;          ///< Kata's configuration file, on the host
  std::optional<std::string> snapshotter = {};  ///< absent: the runtime's own choice
  /// Patterns of Go's path.Match: the annotations of pods and containers that reach the shim.
  std::vector<std::string> pod_annotations = {"io.katacontainers.*", "cdi.k8s.io/*"};
  std::vector<std::string> container_annotations = {"io.kubernetes.container.terminationMessage*"};
  /// containerd's `runtime_type` is the path of the shim already, and may stay so.
  bool told_by_path = false;
  bool operator==(const RuntimeHandler&) const = default;

  /// "io.containerd.NAME.v2": one of its own, so that metrics tell handlers apart.
  std::string type_by_name() const { return "io.containerd." + name + ".v2"; }
  /// `runtime_type` as containerd is told it: that; the path of the shim where the release would look for a
  /// program by that name.
  std::string runtime_type(const ContainerdRelease& release) const {
    return release.starts_shims_by_path() && !told_by_path ? type_by_name() : shim.string();
  }
  /// Whether a pod gets the shim by it all the same: the path does for every release.
  bool may_have_type(std::string_view type, const ContainerdRelease& release) const {
    return type == shim.string() || type == runtime_type(release);
  }
};

/// Where Ferry writes the configuration of each class: a file below this folder is Ferry's.
inline constexpr const char* kKataConfigurations = "/etc/ferry/kata";
bool is_configuration_of_ferry(const std::filesystem::path& path);

/// Whether it is a DNS label (RFC 1123): lower case letters, digits and inner dashes, 63 at most. It is a key
/// of TOML as it stands, and the name of a Kubernetes object.
bool is_handler_name(std::string_view name);

}  // namespace ferry
