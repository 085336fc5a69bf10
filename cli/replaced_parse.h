// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "common/result.h"

namespace CLI {
class App;
}

namespace ferry {

/// Exit status of a program that ferry replaces, for everything but success.
inline constexpr int kReplacedFailed = 1;

/// Parses a replaced program's command line, in which -name stands for --name too. A status: the program ends
/// with it, its help, its version or what is wrong and where to look being printed. Absent: go on.
std::optional<int> parse_replaced(CLI::App& app, int argc, char** argv);

/// Succeeds where the host's root, which `option`, its environment variable or its default names, is a
/// folder. Errc::usage: it is none. CLI11 passes over a variable with a value that a check of the option
/// refuses.
Result<> check_host_root(std::string_view option, const std::string& root);

}  // namespace ferry
