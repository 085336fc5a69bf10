// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "common/config_tree.h"
#include "common/result.h"

namespace ferry {

/// Reads a configuration file, or the text in a ConfigMap: its key config.yaml, or its only key. Errors give
/// lines of the file itself. "-" is standard input. `of_what` is the expected kind of file ("profile");
/// `tolerated` as in parse_config().
Result<ConfigText> read_carried_text(const std::filesystem::path& path, std::string_view of_what,
                                     std::vector<std::string>* tolerated = nullptr);

/// read_carried_text() for a file that has been read already.
Result<ConfigText> carried_text(ConfigText file, std::string_view of_what,
                                std::vector<std::string>* tolerated = nullptr);

}  // namespace ferry
