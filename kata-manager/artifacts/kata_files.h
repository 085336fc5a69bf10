// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <span>

#include "common/result.h"
#include "hostfs/host_fs.h"
#include "kata-manager/artifacts/artifacts.h"

namespace ferry::kata {

/// The path of Kata's configuration in an artifact: `named`, else the only *.toml at the top or, if the top
/// has none, in kKataDefaults. Errc::not_found: no such file; Errc::refused: several.
Result<std::filesystem::path> choose_configuration(std::span<const ArtifactFile> files,
                                                   const std::filesystem::path& named);

/// Checks that `configuration` (relative to `folder`) can be read. Errc::refused: FILE:LINE and the reason.
Result<> check_configuration(const HostFs& host, const std::filesystem::path& folder,
                             const std::filesystem::path& configuration);

}  // namespace ferry::kata
