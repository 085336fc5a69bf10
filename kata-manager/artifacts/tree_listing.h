// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
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

}  // namespace ferry::kata
