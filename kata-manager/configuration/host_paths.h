// SPDX-License-Identifier: Apache-2.0
// Limits the host's programs and files that an artifact's configuration may name.
//
// Kata's shim starts the hypervisor and other configured programs as root. If artifacts chose them,
// everyone with push access to a registry would be root on each node. So a pulled artifact may name only
// programs of Kata's own installation, and only files of that installation or of its own folder.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "common/result.h"
#include "kata-manager/classes/class_file.h"
#include "kata-manager/toml/toml.h"

namespace ferry::kata {

/// The folders that an artifact's configuration may name.
struct ArtifactBounds {
  std::filesystem::path version;  ///< the folder of the artifact's files
  /// The folder of all classes. The class's link in it leads to `version`.
  std::filesystem::path artifacts_dir;
  std::filesystem::path shim;  ///< Kata's shim, in the folder bin of its installation
};

/// The settings that lead a pod or Kata to the host's programs and files beyond `bounds`, sorted by key,
/// a thousand at most, each as Errc::refused: "hypervisor.qemu.path is '/bin/sh', which is no program of
/// Kata's installation". The hint is how the class file allows it. `trusted` has the settings of the class
/// and of administrators' drop-ins, which are not checked. Paths in `artifacts.allowHostPaths` are allowed,
/// and annotations that the class names.
std::vector<Error> beyond_bounds(const KataClass& kata, const TomlTable& effective, const TomlTable& trusted,
                                 const ArtifactBounds& bounds);

/// Errc::refused with the class's place, the first setting, and the number of the others.
Result<> refuse_beyond(const KataClass& kata, const std::vector<Error>& beyond);

/// The host's programs that Kata's shim starts, in the order of the settings.
std::vector<std::filesystem::path> host_programs(const TomlTable& effective);

}  // namespace ferry::kata
