// SPDX-License-Identifier: Apache-2.0
// Inside this room: the moments in which what users see changes.
#pragma once

#include <filesystem>
#include <string>

#include "common/host_fs.h"
#include "common/result.h"
#include "kata-manager/artifact_store.h"

namespace ferry {

/// Makes the folder `staging` the version of that name, in one step; a folder that has the name is thrown
/// away. All of it is on the disk before.
Result<> publish_staging(const HostFs& host, const ArtifactPlaces& places, const std::string& version);

/// Makes `<artifacts_dir>/<name>` a link to `target`, in one step, whatever was there; a folder that was is
/// put aside. False: it is that already.
Result<bool> switch_link(const HostFs& host, const ArtifactPlaces& places,
                         const std::filesystem::path& target);

/// Tidies up what a switch that was killed has left, and what is half done and of no use any more.
Result<> tidy_store(const HostFs& host, const ArtifactPlaces& places, bool blobs_too);

}  // namespace ferry
