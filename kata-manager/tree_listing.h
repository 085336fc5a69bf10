// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "common/result.h"
#include "common/unique_fd.h"
#include "kata-manager/artifacts.h"

namespace ferry {

/// The files and links below a folder, sorted by path; no link is followed. `folder`: open for reading;
/// `contents`: with the files' SHA-256, else it is left empty.
/// Errc::refused: something else than a file, a folder or a link is there, or more of them than `most`.
Result<std::vector<ArtifactFile>> list_tree(UniqueFd folder, bool contents, std::uint64_t most);

}  // namespace ferry
