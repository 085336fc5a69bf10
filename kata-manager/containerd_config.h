// SPDX-License-Identifier: Apache-2.0
// What a containerd release makes of its configuration files: whether it starts, whether its CRI loads, and
// with which values. A change is never tried on the daemon of a node: it is predicted here first.
//
// The rules are those of the releases' own code, held against what real releases did with 78 configurations
// (tests/fixtures/containerd).
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "common/result.h"
#include "kata-manager/config_files.h"
#include "kata-manager/containerd_release.h"
#include "kata-manager/toml.h"

namespace ferry {

/// The sections that configure CRI.
inline constexpr const char* kCriOfVersion1 = "cri";
inline constexpr const char* kCriOfVersion2 = "io.containerd.grpc.v1.cri";
inline constexpr const char* kCriRuntime = "io.containerd.cri.v1.runtime";  ///< from version 3 on
inline constexpr const char* kCriImages = "io.containerd.cri.v1.images";    ///< from version 3 on

/// One file as it was read.
struct ContainerdFile {
  std::filesystem::path path;
  TomlTable root;
  /// Its `version`; 0: it has none.
  std::int64_t version() const;
};

struct ContainerdOutcome {
  std::optional<Error> no_start;      ///< why the daemon would end
  std::optional<Error> no_cri;        ///< why it would run without CRI, and so without pods
  std::vector<ContainerdFile> files;  ///< the main file first, then what it imports, in order
  std::vector<std::string> imports;   ///< patterns, of all files together
  std::vector<std::string> disabled_plugins;
  /// The section that CRI's runtimes are in: kCriOfVersion2 before 2.0, kCriRuntime since.
  std::string runtime_section;
  /// Each plugin's section as it counts, by ID; those of CRI on top of what is built in. Empty if it does not
  /// start.
  TomlTable plugins;

  /// CRI's handlers by name.
  const TomlTable& runtimes() const;
};

/// `main` is the path of the main file; one that does not exist is said in no_start, since a daemon is given
/// it by name.
ContainerdOutcome predict_containerd(const ContainerdRelease& release, const ConfigFiles& files,
                                     const std::filesystem::path& main);

}  // namespace ferry
