// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/output/help_text.h"

namespace ferry::cli {

/// The frame of each command's help: the examples of all commands, in the order of the help text, and the
/// exit statuses. The manual pages have the same examples.
HelpFrame help_frame();

}  // namespace ferry::cli
