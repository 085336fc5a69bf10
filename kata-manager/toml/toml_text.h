// SPDX-License-Identifier: Apache-2.0
// Writes values as TOML, for files or parts of files that only Ferry edits.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "kata-manager/toml/toml.h"

namespace ferry::kata {

/// Keys joined as in a header: `plugins."io.containerd.cri.v1.runtime".containerd`.
std::string dotted(const std::vector<std::string>& keys);

/// A table under its header, followed by its inner tables. `path`: the header's keys; empty: the table is a
/// whole file.
std::string toml_text(const std::vector<std::string>& path, const TomlTable& table);

// Removes tables from a TOML file's text. All other bytes stay.

/// The keys of a table: {"plugins", "io.containerd.grpc.v1.cri", "containerd", "runtimes", "kata"}.
using TomlPath = std::vector<std::string>;

/// The text without these tables and their inner tables. `file` names the text in errors. Errors:
/// Errc::refused: a table has no header of its own (an inline table, dotted keys), so its lines cannot be
/// separated; the error names the file and the tables. Errc::invalid_config: the text is not TOML.
Result<std::string> without_tables(std::string_view text, const std::string& file,
                                   std::span<const TomlPath> paths);

}  // namespace ferry::kata
