// SPDX-License-Identifier: Apache-2.0
// Ferry's own CDI files on a host: those of `ferry plugin` for Kata, and those of claims (claim_files.h).
// Files of other programs are not judged: a container runtime reports a fault of theirs itself.
#pragma once

#include <string_view>

#include "common/config/config_tree.h"
#include "common/result.h"

namespace ferry::api {

/// The first line of the plugin's files, which marks them as Ferry's.
inline constexpr std::string_view kPluginCdiHead = "# Made by `ferry plugin`, and removed by it.\n";

/// `name`: the file's, without a folder.
bool is_own_cdi_file(std::string_view name, std::string_view text);

/// Errc::invalid_config: "FILE:LINE: KEY: reason", the first place that is not as Ferry writes it.
Result<> check_own_cdi_file(const ConfigText& file);

}  // namespace ferry::api
