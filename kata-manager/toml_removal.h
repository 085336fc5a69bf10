// SPDX-License-Identifier: Apache-2.0
// Tables removed from a TOML file as text, so that all else in it stays byte for byte.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"

namespace ferry {

/// The keys that lead to a table: {"plugins", "io.containerd.grpc.v1.cri", "containerd", "runtimes", "kata"}.
using TomlPath = std::vector<std::string>;

/// The text without these tables and the tables below them. `file` names the text in errors.
/// Errors: Errc::refused, a table is not written under headers of its own (an inline table, dotted keys), so
/// that its lines cannot be told from others: the message names the file and the table.
/// Errc::invalid_config, the text is not TOML.
Result<std::string> without_tables(std::string_view text, const std::string& file,
                                   std::span<const TomlPath> paths);

}  // namespace ferry
