// SPDX-License-Identifier: Apache-2.0
// The undo journal of a container runtime's configuration: changes that are written but not verified. A run
// that is killed after a write leaves the rollback to the next run. A run that only writes, for a later
// start of the runtime, does so, too.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "common/result.h"
#include "hostfs/host_fs.h"
#include "kata-manager/runtimes/config_files.h"
#include "kata-manager/runtimes/container_runtime.h"

namespace ferry::kata {

/// A path below the host's root. It exists while a run works, or after one was killed.
inline constexpr const char* kRuntimeRecord = "var/lib/ferry-hostd/kata/unproven.json";

/// A path below the host's root: changes that the runtime was not made to read.
inline constexpr const char* kUnreadRecord = "var/lib/ferry-hostd/kata/unread.json";

/// Written before the first write. `changes` begin with the earlier, unverified ones, which it replaces.
Result<> write_runtime_record(HostFs& host, const std::vector<FileChange>& changes);

/// Ends a run whose changes wait for the runtime's next start. After that the runtime must know `handlers`,
/// and none of `leaving`.
Result<> leave_unread(HostFs& host, const std::vector<FileChange>& changes,
                      std::span<const RuntimeHandler> handlers, const std::vector<std::string>& leaving);

/// True: the runtime's answer shows that it has read the unread changes. False if there are none.
Result<bool> has_been_read(const HostFs& host, const RuntimeState& state);

/// A killed run's changes, else the unread ones, merged to one for each file: from the content before the
/// first to the present content. A file with other content, because the run did not reach it or another
/// program changed it, is left out. Empty: nothing is unverified. Errc::malformed_host: an unreadable
/// journal.
Result<std::vector<FileChange>> read_runtime_record(const HostFs& host);

/// Ends a run whose changes are verified, or rolled back.
Result<> forget_runtime_record(HostFs& host);

/// Ends a run that was rolled back before the runtime read it. Earlier unread changes stay.
Result<> forget_this_run(HostFs& host);

}  // namespace ferry::kata
