// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "kata-manager/runtime/container_runtime.h"
#include "kata-manager/toml/toml.h"

namespace ferry::kata {

/// A runtime of Ferry in a configuration file. CRI-O's file has no annotations: it passes all.
struct ConfiguredRuntime : RuntimeHandler {
  std::filesystem::path file;
  std::string type = {};  ///< containerd's `runtime_type`; empty in CRI-O
  /// The table has lost Ferry's marks, because another program rewrote the file.
  bool unmarked = false;
  bool operator==(const ConfiguredRuntime&) const = default;

  /// The handler that would produce this runtime.
  const RuntimeHandler& handler() const { return *this; }
};

/// Reads an entry of containerd's table of runtimes that entry_of() made.
ConfiguredRuntime configured_runtime(const std::string& name, const std::filesystem::path& file,
                                     const TomlTable& entry);

// Ferry's runtime tables outside of its blocks (with_block() in config_files.h). A program that parses and
// reprints containerd's file drops comments, and Ferry's marks with them.

struct UnmarkedRuntime {
  std::string name;
  TomlTable entry;
  std::vector<TomlPath> tables;  ///< its table, and its snapshotter's if there is one
};

/// The runtimes in a file whose `ConfigPath` lies below /etc/ferry/kata, by name. `root`: the file without
/// Ferry's block.
std::vector<UnmarkedRuntime> unmarked_runtimes(const TomlTable& root);

}  // namespace ferry::kata
