// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "common/config_tree.h"
#include "common/result.h"

namespace ferry {

/// The text of a configuration file, or the one that a ConfigMap carries: its key config.yaml, or its only
/// key. Places in errors are lines of the file itself. "-" is standard input. `of_what` is the kind of file
/// that is expected, "profile"; `tolerated` is parse_config()'s.
Result<ConfigText> read_carried_text(const std::filesystem::path& path, std::string_view of_what,
                                     std::vector<std::string>* tolerated = nullptr);

/// The same of a file that has been read already.
Result<ConfigText> carried_text(ConfigText file, std::string_view of_what,
                                std::vector<std::string>* tolerated = nullptr);

}  // namespace ferry
