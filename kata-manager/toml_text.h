// SPDX-License-Identifier: Apache-2.0
// Values as TOML: of files, or parts of files, that are ours alone.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kata-manager/toml.h"

namespace ferry {

/// Keys as a header or a line has them: `plugins."io.containerd.cri.v1.runtime".containerd`.
std::string dotted(const std::vector<std::string>& keys);

/// A table under a header of its own, with its inner tables behind it. `path` are the header's keys; none:
/// the table is a whole file.
std::string toml_text(const std::vector<std::string>& path, const TomlTable& table);

}  // namespace ferry
