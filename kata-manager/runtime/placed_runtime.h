// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "kata-manager/classes/runtime_handler.h"
#include "kata-manager/toml/toml.h"

namespace ferry::kata {

/// A runtime of Ferry in a configuration file.
struct PlacedRuntime {
  std::string name;
  std::filesystem::path file;
  std::string type = {};  ///< containerd's `runtime_type`; empty in CRI-O
  std::filesystem::path shim;
  std::filesystem::path configuration;
  std::string snapshotter = {};  ///< empty: the daemon's default
  // containerd only; CRI-O passes all annotations.
  std::vector<std::string> pod_annotations = RuntimeHandler{}.pod_annotations;
  std::vector<std::string> container_annotations = RuntimeHandler{}.container_annotations;
  /// The table has lost Ferry's marks, because another program rewrote the file.
  bool unmarked = false;
  bool operator==(const PlacedRuntime&) const = default;
};

/// Reads an entry of containerd's table of runtimes that entry_of() made.
PlacedRuntime placed_runtime(const std::string& name, const std::filesystem::path& file,
                             const TomlTable& entry);

/// The handler that would produce this runtime.
RuntimeHandler handler_of(const PlacedRuntime& placed);

}  // namespace ferry::kata
