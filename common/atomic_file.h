// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string_view>
#include <sys/types.h>

#include "common/result.h"

namespace ferry {

/// Replaces `path` by `content`, whole or not at all: written beside it under a name of its own, synced,
/// renamed, the directory synced. An existing file keeps owner and mode; a new one gets `mode`. Missing
/// parent directories are made (0755). A reader never sees half a file; a crash leaves at most a dot-file
/// that the next call ignores.
Result<> write_atomically(const std::filesystem::path& path, std::string_view content, mode_t mode = 0644);

}  // namespace ferry
