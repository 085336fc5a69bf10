// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <vector>

#include "common/result.h"
#include "common/unique_fd.h"
#include "kata-manager/artifacts.h"

namespace ferry {

struct TreeListing {
  std::vector<ArtifactFile> files;   ///< and links, sorted by path
  std::filesystem::path privileged;  ///< a file that runs as its owner or group; empty: none does
};

/// The files and links below a folder; no link is followed. `folder`: open for reading;
/// `contents`: with the files' SHA-256, else it is left empty.
/// Errc::refused: something else than a file, a folder or a link is there, or more of them than `most`.
Result<TreeListing> list_tree(UniqueFd folder, bool contents, std::uint64_t most);

}  // namespace ferry
