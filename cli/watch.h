// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "cli/session.h"
#include "common/exit_status.h"
#include "common/result.h"

namespace ferry {

struct Shown;

/// Prints a verb's output, and again whenever it changes. It looks when the kernel reports a device, when a
/// file of Ferry's changes, and periodically for device users, which no event announces. A terminal is
/// redrawn in place; elsewhere blocks follow each other. SIGINT or SIGTERM ends it: done. Each error of a
/// look is printed once and ends nothing. Failed: nothing can be waited for or printed.
ExitStatus watch(const Session& session, const std::function<Result<Shown>()>& look);

}  // namespace ferry
