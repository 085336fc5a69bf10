// SPDX-License-Identifier: Apache-2.0
// The host's side as it lies in files: read for a look, written after it.
#pragma once

#include "agent/node_report.h"
#include "agent/node_step.h"
#include "common/host_fs.h"
#include "common/result.h"

namespace ferry {

/// Whose lock says that an agent serves this node. Relative to the host's root.
inline constexpr const char* kAgentLock = "var/lib/ferry/agent.lock";

/// wanted.json, state.json, kata.json and kata-classes.json. None has to be there, and what cannot be
/// understood is said in it, or of Kata's files is as if it were not there: an error is one of reading.
/// `silent` and `kata_silent` are the caller's to say.
Result<HostSide> read_host_side(const HostFs& host);

/// Writes or removes wanted.json, as a step says; nothing where it stays.
Result<> write_wish(HostFs& host, const NodeStep& step);

/// Relative to the host's root; beside wanted.json (common/serving_file.h).
inline constexpr const char* kServingFile = "var/lib/ferry/serving.json";

/// Writes or removes serving.json, as a step says; not where it stays, is so already, or is a person's. Gives
/// whether it does, or would.
Result<bool> write_serving(HostFs& host, const NodeStep& step, bool dry_run = false);

/// kata-classes.json. Twice the same has hostd look again.
Result<> write_wanted_classes(HostFs& host, const WantedClasses& wanted);

}  // namespace ferry
