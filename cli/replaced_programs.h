// SPDX-License-Identifier: Apache-2.0
// The programs that ferry takes the place of, when it is linked under their names: their commands, flags and
// environment variables. What is done and said differently stands in docs/compatibility.md. Exit status: 0,
// and 1 for everything else.
#pragma once

#include <optional>
#include <string_view>

namespace ferry {

/// Runs the program that `name` (argv[0], with or without a path) stands for. Absent when it stands for none.
std::optional<int> run_replaced_program(std::string_view name, int argc, char** argv);

}  // namespace ferry
