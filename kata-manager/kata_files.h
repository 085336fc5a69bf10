// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <span>

#include "common/host_fs.h"
#include "common/result.h"
#include "kata-manager/artifacts.h"

namespace ferry {

/// Which of an artifact's files is Kata's configuration: the one that is named, else the only *.toml at the
/// top or, where none is there, in kKataDefaults. Errc::not_found: there is none such; Errc::refused: there
/// are several.
Result<std::filesystem::path> choose_configuration(std::span<const ArtifactFile> files,
                                                   const std::filesystem::path& named);

/// Whether `configuration` (relative to `folder`) can be read at all. Errc::refused: FILE:LINE and why not.
Result<> check_configuration(const HostFs& host, const std::filesystem::path& folder,
                             const std::filesystem::path& configuration);

}  // namespace ferry
