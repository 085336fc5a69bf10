// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

namespace CLI {
class App;
}

namespace ferry {

/// Exit status of a program that ferry replaces, for everything but success.
inline constexpr int kReplacedFailed = 1;

/// Parses a replaced program's command line, in which -name stands for --name too. A status: the program ends
/// with it, its help, its version or what is wrong and where to look being printed. Absent: go on.
std::optional<int> parse_replaced(CLI::App& app, int argc, char** argv);

}  // namespace ferry
