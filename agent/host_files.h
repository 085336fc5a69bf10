// SPDX-License-Identifier: Apache-2.0
// Reads the files of the host before a reconcile, and writes them after it.
#pragma once

#include "agent/node_report.h"
#include "agent/node_step.h"
#include "common/host_fs.h"
#include "common/result.h"

namespace ferry {

/// Lock file of the agent that serves this node. Relative to the host's root.
inline constexpr const char* kAgentLock = "var/lib/ferry/agent.lock";

/// Reads wanted.json, state.json, kata.json and kata-classes.json. A missing file is no error. A state.json
/// that cannot be parsed is described in `unreadable`; other files count as missing then. Errors: a file
/// cannot be read. The caller sets `silent` and `kata_silent`.
Result<HostSide> read_host_side(const HostFs& host);

/// Writes or removes wanted.json if the step asks for it.
Result<> write_wish(HostFs& host, const NodeStep& step);

/// Relative to the host's root; beside wanted.json (common/serving_file.h).
inline constexpr const char* kServingFile = "var/lib/ferry/serving.json";

/// Writes or removes serving.json if the step asks for it. A file that is right already stays, and so does
/// one that a person wrote. True: the file changes, or would do so.
Result<bool> write_serving(HostFs& host, const NodeStep& step, bool dry_run = false);

/// Writes kata-classes.json. Writing the same content again makes hostd reconcile.
Result<> write_wanted_classes(HostFs& host, const WantedClasses& wanted);

}  // namespace ferry
