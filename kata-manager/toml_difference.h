// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "kata-manager/toml.h"

namespace ferry {

/// Where two tables first say different things: "plugins.a.b: true, and would be false". What is empty, false
/// or 0 is as good as absent, as it is to a program that decodes into variables. Nothing: they agree.
std::optional<std::string> first_difference(const TomlTable& is, const TomlTable& would_be,
                                            const std::string& path);

}  // namespace ferry
