// SPDX-License-Identifier: Apache-2.0
// Reads a class's artifact without fetching it, and remembers the folders of artifacts.
#pragma once

#include <filesystem>
#include <optional>
#include <vector>

#include "common/result.h"
#include "hostfs/host_fs.h"
#include "kata-manager/artifacts/artifacts.h"
#include "kata-manager/classes/class_file.h"

namespace ferry::kata {

/// Absent: the artifact is not on this host. For a folder that `file://` names, the result is that of a
/// fetch, but without digests, and the artifact's link may be missing. Errors: as current_artifact(),
/// check_root_only() and list_tree(); Errc::refused: it is not clear which file of a folder is Kata's
/// configuration.
Result<std::optional<Artifact>> known_artifact(const HostFs& host, const ClassFile& file,
                                               const KataClass& kata);

/// Records a folder of artifacts, so that a removal finds it without a class file, or with one that names
/// another folder. An equal record is not written again. `folder` is a path on the host.
Result<> remember_artifacts_dir(HostFs& host, const std::filesystem::path& folder);
/// All folders that were recorded and not forgotten, the last one first. Empty: Ferry has installed nothing.
Result<std::vector<std::filesystem::path>> remembered_artifacts_dirs(const HostFs& host);
/// These folders and `folder`, which may be among them; `folder` alone if the record cannot be read.
std::vector<std::filesystem::path> artifacts_dirs_with(const HostFs& host,
                                                       const std::filesystem::path& folder);
/// Forgets all folders but those that could not be reached (KataChange::unreached).
Result<> forget_artifacts_dirs(HostFs& host, const std::vector<std::filesystem::path>& unreached);

}  // namespace ferry::kata
