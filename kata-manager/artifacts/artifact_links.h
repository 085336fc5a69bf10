// SPDX-License-Identifier: Apache-2.0
// Internal: the links of classes, in the artifacts' folder. Root alone writes that folder.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "common/result.h"
#include "common/unique_fd.h"
#include "hostfs/host_fs.h"
#include "kata-manager/artifacts/artifact_store.h"
#include "kata-manager/artifacts/artifacts.h"

namespace ferry::kata {

/// The target of the link that leads to `artifact`, if the link must be made or changed. Absent: it is so
/// already, or the artifact lies in the link's own place. Errc::refused: a folder, a file or a link is there
/// that Ferry did not make, or the way to the artifact goes through the link. A link is Ferry's if it leads
/// into the store, or if make_link() has recorded its target.
Result<std::optional<std::filesystem::path>> link_to_make(const HostFs& host,
                                                          const std::filesystem::path& artifacts_dir,
                                                          const Artifact& artifact);

/// Makes `<artifacts_dir>/<name>` a link to `target`, in one step. It replaces a link, and never a folder. It
/// records a target outside of the store in hostd's own folder, which only root writes.
Result<> make_link(HostFs& host, const std::filesystem::path& artifacts_dir, const std::string& name,
                   const std::filesystem::path& target);

/// make_link() for `ferry kata install`: a folder in its place is exchanged for the link in the same step,
/// and stays in the artifacts' folder as `.<name>.replaced-N`. False: the link is there already.
Result<bool> switch_link(const UniqueFd& top, const ArtifactPlaces& places,
                         const std::filesystem::path& target);

/// Removes what a killed switch_link() left.
Result<> tidy_links(const UniqueFd& top, const ArtifactPlaces& places);

/// Removes the link of a class and what switch_link() left. A folder in its place stays, and so does a link
/// that Ferry did not make. `replaced`: as remove_artifact().
Result<> remove_link(HostFs& host, const UniqueFd& top, const ArtifactPlaces& places, Replaced replaced);

}  // namespace ferry::kata
