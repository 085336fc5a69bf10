// SPDX-License-Identifier: Apache-2.0
// The host's side as it lies in files: read for a look, written after it.
#pragma once

#include "agent/node_report.h"
#include "agent/node_step.h"
#include "common/host_fs.h"
#include "common/result.h"

namespace ferry {

/// wanted.json and state.json. Neither has to be there, and what cannot be understood is said in it: an error
/// is one of reading. `silent` is the caller's to say.
Result<HostSide> read_host_side(const HostFs& host);

/// Writes or removes wanted.json, as a step says; nothing where it stays.
Result<> write_wish(HostFs& host, const NodeStep& step);

}  // namespace ferry
