// SPDX-License-Identifier: Apache-2.0
// Inside this room: the parts of a prediction (containerd_config.h).
#pragma once

#include <filesystem>
#include <optional>
#include <vector>

#include "kata-manager/containerd_config.h"

namespace ferry {

struct FilesRead {
  std::vector<ContainerdFile> files;
  std::optional<Error> problem;  ///< the files behind it are not read
};

/// The main file and what it imports, breadth first, each once. Only patterns with a `*` may match nothing.
FilesRead read_containerd_files(const ContainerdRelease& release, const ConfigFiles& files,
                                const std::filesystem::path& main);

/// What counts where no file says anything: the CRI sections, by plugin ID.
TomlTable built_in_cri(const ContainerdRelease& release);

/// A table with the dot-less name of version 1 under its full name.
TomlTable with_full_names(const TomlTable& plugins);

/// CRI's section of version 2 moved to those of version 3, where these do not have the key already.
TomlTable migrated_to_version_3(const ContainerdRelease& release, TomlTable plugins);

/// What the daemon cannot decode, in a CRI section that it uses; nothing: it can.
std::optional<Error> wrong_type(const TomlTable& section, const std::string& name);

}  // namespace ferry
