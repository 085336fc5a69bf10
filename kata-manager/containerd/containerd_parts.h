// SPDX-License-Identifier: Apache-2.0
// Internal: the parts of a prediction (containerd_config.h).
#pragma once

#include <filesystem>
#include <optional>
#include <vector>

#include "kata-manager/containerd/containerd_config.h"

namespace ferry::kata {

struct FilesRead {
  std::vector<ContainerdFile> files;
  std::optional<Error> problem;  ///< later files are not read
};

/// The main file and its imports, breadth first, each once. Only a pattern with `*` may match no file.
FilesRead read_containerd_files(const ContainerdRelease& release, const ConfigFiles& files,
                                const std::filesystem::path& main);

/// CRI's built-in sections by plugin ID, for settings that no file has.
TomlTable built_in_cri(const ContainerdRelease& release);

/// Renames the dot-less section of version 1 to its full name.
TomlTable with_full_names(const TomlTable& plugins);

/// Moves CRI's section of version 2 into those of version 3. Keys that exist there win.
TomlTable migrated_to_version_3(const ContainerdRelease& release, TomlTable plugins);

/// A value in a used CRI section that the daemon cannot decode; absent: none.
std::optional<Error> wrong_type(const TomlTable& section, const std::string& name);

}  // namespace ferry::kata
