// SPDX-License-Identifier: Apache-2.0
// What was written into a container runtime's configuration and has not been proven yet: whoever is killed
// between the writing and the proof leaves to the next one what to put back, and so does who only writes, for
// a later start of the runtime to read.
#pragma once

#include <vector>

#include "common/host_fs.h"
#include "common/result.h"
#include "kata-manager/file_change.h"

namespace ferry {

/// Below the host's root. As long as it is there, somebody is at work, or was killed.
inline constexpr const char* kRuntimeRecord = "var/lib/ferry/kata/unproven.json";

/// Likewise: what nobody has made the runtime read.
inline constexpr const char* kUnreadRecord = "var/lib/ferry/kata/unread.json";

/// Made before the first write, in place of an earlier one: what that one had and is not proven comes first.
Result<> write_runtime_record(HostFs& host, const std::vector<FileChange>& changes);

/// What is written stays to be read, by whoever starts the runtime next: nobody is at work any more.
Result<> leave_unread(HostFs& host, const std::vector<FileChange>& changes);

/// What was written by either, as one change for each file: from what was there before the first of it to
/// what is there. A file that is not as it was written, because nobody came to it or somebody has changed it
/// since, is left out. None: nothing waits for its proof. Errors: Errc::malformed_host, the record cannot be
/// read.
Result<std::vector<FileChange>> read_runtime_record(const HostFs& host);

/// They are proven, or put back.
Result<> forget_runtime_record(HostFs& host);

}  // namespace ferry
