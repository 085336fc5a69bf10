// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "kata-manager/runtime_handler.h"
#include "kata-manager/toml.h"

namespace ferry {

/// A runtime of ours as a file has it.
struct PlacedRuntime {
  std::string name;
  std::filesystem::path file;
  std::string type = {};  ///< containerd's `runtime_type`; empty of CRI-O
  std::filesystem::path shim;
  std::filesystem::path configuration;
  std::string snapshotter = {};  ///< empty: the runtime's own choice
  // Of containerd: CRI-O lets all annotations through.
  std::vector<std::string> pod_annotations = RuntimeHandler{}.pod_annotations;
  std::vector<std::string> container_annotations = RuntimeHandler{}.container_annotations;
  /// The table stands outside Ferry's marks: another program has written the file anew.
  bool unmarked = false;
  bool operator==(const PlacedRuntime&) const = default;
};

/// An entry of containerd's table of runtimes, which entry_of() has made once.
PlacedRuntime placed_runtime(const std::string& name, const std::filesystem::path& file,
                             const TomlTable& entry);

/// What we would be asked for to have it just so.
RuntimeHandler handler_of(const PlacedRuntime& placed);

}  // namespace ferry
