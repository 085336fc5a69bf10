// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>

#include "common/result.h"
#include "common/unique_fd.h"
#include "hostfs/host_fs.h"
#include "kata-manager/artifacts/artifact_store.h"
#include "kata-manager/artifacts/artifacts.h"
#include "kata-manager/artifacts/manifest.h"

namespace ferry::kata {

/// Checks that `configuration` (relative to `folder`) can be read. Errc::refused: FILE:LINE and the reason.
/// `host` is the root of absolute links: of a version in a store, which an agent writes, the version itself.
Result<> check_configuration(const HostFs& host, const std::filesystem::path& folder,
                             const std::filesystem::path& configuration);

// The atomic changes of a store. `store` is open_store(), and `places` are for its names and messages.

/// Makes the folder `staging` the version of that name, in one step, after all of it is on the disk. An
/// existing folder of that name moves to `staging`.
Result<> publish_staging(const UniqueFd& store, const ArtifactPlaces& places, const std::string& version);

/// Removes unfinished work.
Result<> tidy_store(const UniqueFd& store, const ArtifactPlaces& places);

// Builds a version from its manifest, in the staging folder.

/// Makes the folder `staging` of the layers, which must not exist yet. `blobs`: Skopeo::copy(), on the same
/// file system. A layer's content goes there only after its digest matched. Errc::failed: another digest.
Result<> build_version(const UniqueFd& store, const ArtifactPlaces& places, const UniqueFd& blobs,
                       const ArtifactManifest& manifest, const FetchRequest& request);

}  // namespace ferry::kata
