// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "cli/output/help_text.h"

namespace ferry::cli {

/// The examples of all commands, in the order of the help text. The manual pages have the same lines.
std::span<const Example> ferry_examples();

/// The frame of each command's help: the examples and the exit statuses.
HelpFrame help_frame();

}  // namespace ferry::cli
