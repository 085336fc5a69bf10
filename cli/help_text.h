// SPDX-License-Identifier: Apache-2.0
// The output of --help, no wider than the terminal.
#pragma once

#include <string>
#include <string_view>

#include "cli/canvas.h"

namespace CLI {
class App;
class Success;
}  // namespace CLI

namespace ferry {

/// CLI11's text broken into lines that fit, each description below its own beginning. A canvas without a
/// width leaves it unchanged.
std::string fitted_help(std::string_view help, const Canvas& canvas);

/// Prints the help or version that was asked for instead of a command, to standard output. Returns the exit
/// status.
int print_help(const CLI::App& app, const CLI::Success& asked);

}  // namespace ferry
