// SPDX-License-Identifier: Apache-2.0
// Internal: the files of an artifact, of a version in the store or of a folder of the host.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "common/result.h"
#include "common/unique_fd.h"
#include "kata-manager/artifacts/artifacts.h"

namespace ferry::kata {

struct TreeListing {
  std::vector<ArtifactFile> files;   ///< and links, sorted by path
  std::filesystem::path privileged;  ///< a set-user-ID or set-group-ID file; empty: none
};

/// The files and links below a folder; no link is followed. `folder`: open for reading; `contents`: also
/// computes the files' SHA-256. Errc::refused: an entry is no file, folder or link, or there are more than
/// `most`.
Result<TreeListing> list_tree(UniqueFd folder, bool contents, std::uint64_t most);

/// The path of Kata's configuration in an artifact: `named`, else the only *.toml at the top or, if the top
/// has none, in kKataDefaults. Errc::not_found: no such file; Errc::refused: several.
Result<std::filesystem::path> choose_configuration(std::span<const ArtifactFile> files,
                                                   const std::filesystem::path& named);

}  // namespace ferry::kata
