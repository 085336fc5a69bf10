// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "cli/session.h"
#include "common/exit_status.h"
#include "common/result.h"

namespace ferry {

struct Shown;

/// What a verb says, again whenever it says something else: looked at when the kernel tells of a device, when
/// a file of Ferry's changes, and once in a while for what nobody tells of (who uses a device). On a terminal
/// it stays in its place; else one block comes after the other. Until SIGINT or SIGTERM, and then done.
/// Errors of a look are told once each and end nothing; failed: nothing can be waited for, or written to.
ExitStatus watch(const Session& session, const std::function<Result<Shown>()>& look);

}  // namespace ferry
