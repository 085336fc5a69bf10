// SPDX-License-Identifier: Apache-2.0
// Internal: the atomic changes that users of an artifact see.
#pragma once

#include <filesystem>
#include <string>

#include "common/result.h"
#include "hostfs/host_fs.h"
#include "kata-manager/artifacts/artifact_store.h"

namespace ferry::kata {

/// Makes the folder `staging` the version of that name, in one step, after all of it is on the disk. An
/// existing folder of that name moves to `staging`.
Result<> publish_staging(const HostFs& host, const ArtifactPlaces& places, const std::string& version);

/// Makes `<artifacts_dir>/<name>` a link to `target`, in one step. A folder in its place is put aside.
/// False: the link is there already.
Result<bool> switch_link(const HostFs& host, const ArtifactPlaces& places,
                         const std::filesystem::path& target);

/// Cleans up after a killed switch, and removes unfinished work.
Result<> tidy_store(const HostFs& host, const ArtifactPlaces& places, bool blobs_too);

}  // namespace ferry::kata
