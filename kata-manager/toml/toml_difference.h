// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "kata-manager/toml/toml.h"

namespace ferry::kata {

/// The first difference of two tables: "plugins.a.b: true, and would be false". Empty, false and 0 equal
/// absent, as for a program that decodes into variables. Absent: no difference.
std::optional<std::string> first_difference(const TomlTable& is, const TomlTable& would_be,
                                            const std::string& path);

}  // namespace ferry::kata
