// SPDX-License-Identifier: Apache-2.0
// What is known of a class's artifact without fetching it, and where artifacts were put.
#pragma once

#include <filesystem>
#include <optional>

#include "common/host_fs.h"
#include "common/result.h"
#include "kata-manager/artifacts.h"
#include "kata-manager/class_file.h"

namespace ferry {

/// Absent: what the file names is not here. Of a folder that `file://` names it is what a fetch would give:
/// without a digest, and whether its link is there is not asked. Errors: as current_artifact();
/// Errc::refused, which file of a folder is Kata's configuration is not said.
Result<std::optional<Artifact>> known_artifact(const HostFs& host, const ClassFile& file,
                                               const KataClass& kata);

/// Below the host's root: the folder that artifacts were put into, for whoever takes them away without a
/// file. What is remembered already is not written again.
Result<> remember_artifacts_dir(HostFs& host, const std::filesystem::path& folder);
/// Absent: nothing was ever installed.
Result<std::optional<std::filesystem::path>> remembered_artifacts_dir(const HostFs& host);
Result<> forget_artifacts_dir(HostFs& host);

}  // namespace ferry
