// SPDX-License-Identifier: Apache-2.0
// Removes tables from a TOML file's text. All other bytes stay.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"

namespace ferry::kata {

/// The keys of a table: {"plugins", "io.containerd.grpc.v1.cri", "containerd", "runtimes", "kata"}.
using TomlPath = std::vector<std::string>;

/// The text without these tables and their inner tables. `file` names the text in errors. Errors:
/// Errc::refused: a table has no header of its own (an inline table, dotted keys), so its lines cannot be
/// separated; the error names the file and the tables. Errc::invalid_config: the text is not TOML.
Result<std::string> without_tables(std::string_view text, const std::string& file,
                                   std::span<const TomlPath> paths);

}  // namespace ferry::kata
