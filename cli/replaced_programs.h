// SPDX-License-Identifier: Apache-2.0
// The programs that ferry replaces when it is linked under their names, with their commands, flags and
// environment variables. docs/compatibility.md lists the differences. Exit status: 0, and 1 for any error.
#pragma once

#include <optional>
#include <string_view>

namespace ferry {

/// Runs the program that `name` (argv[0], with or without a path) stands for. Absent: it stands for none.
std::optional<int> run_replaced_program(std::string_view name, int argc, char** argv);

}  // namespace ferry
