// SPDX-License-Identifier: Apache-2.0
// Reads a class's artifact without fetching it, and remembers the artifacts' folder.
#pragma once

#include <filesystem>
#include <optional>

#include "common/result.h"
#include "hostfs/host_fs.h"
#include "kata-manager/artifacts/artifacts.h"
#include "kata-manager/classes/class_file.h"

namespace ferry::kata {

/// Absent: the artifact is not on this host. For a folder that `file://` names, the result is that of a
/// fetch, but without a digest, and the artifact's link may be missing. Errors: as current_artifact();
/// Errc::refused: the class does not say which file of a folder is Kata's configuration.
Result<std::optional<Artifact>> known_artifact(const HostFs& host, const ClassFile& file,
                                               const KataClass& kata);

/// Records the artifacts' folder, so that a removal without a class file finds it. An equal record is not
/// written again. `folder` is a path on the host.
Result<> remember_artifacts_dir(HostFs& host, const std::filesystem::path& folder);
/// Absent: Ferry has installed nothing.
Result<std::optional<std::filesystem::path>> remembered_artifacts_dir(const HostFs& host);
Result<> forget_artifacts_dir(HostFs& host);

}  // namespace ferry::kata
