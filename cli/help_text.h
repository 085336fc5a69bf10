// SPDX-License-Identifier: Apache-2.0
// What --help prints, no wider than the terminal.
#pragma once

#include <string>
#include <string_view>

#include "cli/canvas.h"

namespace CLI {
class App;
class Success;
}  // namespace CLI

namespace ferry {

/// CLI11's text broken into lines that fit, each description below its own beginning. As it is where the
/// canvas has no width.
std::string fitted_help(std::string_view help, const Canvas& canvas);

/// Prints what was asked for instead of a command, --help or --version, to standard output, and gives the
/// exit status.
int print_help(const CLI::App& app, const CLI::Success& asked);

}  // namespace ferry
