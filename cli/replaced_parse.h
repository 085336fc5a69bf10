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

/// The exit status of a replaced program for any error.
inline constexpr int kReplacedFailed = 1;

/// Parses a replaced program's command line, where -name also stands for --name. A status: the help, the
/// version or an error with its hint is printed, and the program ends with it. Absent: the program goes on.
std::optional<int> parse_replaced(CLI::App& app, int argc, char** argv);

/// Succeeds if the host's root is a folder. `option`, its environment variable or its default names that
/// root. Errc::usage: it is no folder. CLI11's own check would not do: it ignores a variable whose value
/// fails the check.
Result<> check_host_root(std::string_view option, const std::string& root);

}  // namespace ferry
