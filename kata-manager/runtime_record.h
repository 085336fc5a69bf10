// SPDX-License-Identifier: Apache-2.0
// What was written into a container runtime's configuration and has not been proven yet: whoever is killed
// between the writing and the proof leaves to the next one what to put back, and so does who only writes, for
// a later start of the runtime to read.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "common/host_fs.h"
#include "common/result.h"
#include "kata-manager/container_runtime.h"
#include "kata-manager/file_change.h"
#include "kata-manager/runtime_handler.h"

namespace ferry {

/// Below the host's root. As long as it is there, somebody is at work, or was killed.
inline constexpr const char* kRuntimeRecord = "var/lib/ferry-hostd/kata/unproven.json";

/// Likewise: what nobody has made the runtime read.
inline constexpr const char* kUnreadRecord = "var/lib/ferry-hostd/kata/unread.json";

/// Made before the first write, in place of an earlier one: what that one had and is not proven comes first.
Result<> write_runtime_record(HostFs& host, const std::vector<FileChange>& changes);

/// What is written stays to be read, by whoever starts the runtime next: nobody is at work any more. Once it
/// has been read, the runtime knows `handlers`, and none of `leaving`.
Result<> leave_unread(HostFs& host, const std::vector<FileChange>& changes,
                      std::span<const RuntimeHandler> handlers, const std::vector<std::string>& leaving);

/// Whether the runtime shows that it has read what was left to be read; false too where nothing was.
Result<bool> has_been_read(const HostFs& host, const RuntimeState& state);

/// What was written by whoever was killed, else what was left to be read, as one change for each file: from
/// what was there before the first of it to what is there. A file that is not as it was written, because
/// nobody came to it or somebody has changed it since, is left out. None: nothing waits for its proof.
/// Errors: Errc::malformed_host, the record cannot be read; Errc::refused, one is where earlier versions had
/// theirs (common/earlier_record.h).
Result<std::vector<FileChange>> read_runtime_record(const HostFs& host);

/// They are proven, or put back.
Result<> forget_runtime_record(HostFs& host);

/// What this run has written is put back, and nothing was made to read it: what was left before is as it was.
Result<> forget_this_run(HostFs& host);

}  // namespace ferry
