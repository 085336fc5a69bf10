// SPDX-License-Identifier: Apache-2.0
// Writes values as TOML, for files or parts of files that only Ferry edits.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kata-manager/toml/toml.h"

namespace ferry::kata {

/// Keys joined as in a header: `plugins."io.containerd.cri.v1.runtime".containerd`.
std::string dotted(const std::vector<std::string>& keys);

/// A table under its header, followed by its inner tables. `path`: the header's keys; empty: the table is a
/// whole file.
std::string toml_text(const std::vector<std::string>& path, const TomlTable& table);

}  // namespace ferry::kata
