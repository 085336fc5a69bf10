// SPDX-License-Identifier: Apache-2.0
// The programs and files of the host that an artifact's configuration may name.
//
// Kata's shim starts the hypervisor and the other programs of its configuration as root. Whoever can push to
// a registry would be root on each node if an artifact chose them. An artifact that was pulled may therefore
// name programs of Kata's own installation alone, and files of its own folder beside those.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "common/result.h"
#include "kata-manager/class_file.h"
#include "kata-manager/toml.h"

namespace ferry {

/// The folders in which an artifact's configuration may name something.
struct ArtifactBounds {
  std::filesystem::path version;        ///< the artifact's files
  std::filesystem::path link;           ///< <artifacts_dir>/CLASS, which leads to them
  std::filesystem::path artifacts_dir;  ///< of all classes
  std::filesystem::path shim;           ///< Kata's, in the folder bin of its installation
};

/// A setting that the class does not allow.
struct BeyondBounds {
  std::string what;  ///< "hypervisor.qemu.path is '/bin/sh', which is no program of Kata's installation"
  std::string hint;  ///< how the class file allows it
};

/// The settings of a configuration that lead a pod or Kata to programs and files of the host beyond `bounds`,
/// in order of their keys. `trusted` is what the class and the administrator's own drop-ins say: it is not
/// asked about. Paths in `artifacts.allowHostPaths` are allowed, and so are annotations that the class names
/// itself.
std::vector<BeyondBounds> beyond_bounds(const KataClass& kata, const TomlTable& effective,
                                        const TomlTable& trusted, const ArtifactBounds& bounds);

/// Errc::refused with the class's place, the first of them, and how many others there are.
Result<> refuse_beyond(const KataClass& kata, const std::vector<BeyondBounds>& beyond);

/// The programs of the host that Kata's shim starts by a configuration, in the order of the settings.
std::vector<std::filesystem::path> host_programs(const TomlTable& effective);

}  // namespace ferry
