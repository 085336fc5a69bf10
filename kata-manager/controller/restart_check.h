// SPDX-License-Identifier: Apache-2.0
// Shows before a start that containerd's CRI will serve. A start reads all changes of containerd's files
// since its last one, not only Ferry's.
#pragma once

#include <optional>
#include <string>

#include "common/result.h"
#include "hostfs/host_fs.h"
#include "hostfs/host_writer.h"
#include "kata-manager/controller/found_runtime.h"

namespace ferry::kata {

struct RestartCheck {
  HostFs* host = nullptr;
  HostWriter* writer = nullptr;
  const FoundRuntime* runtime = nullptr;
  const RuntimePlan* plan = nullptr;
  bool accept_edited_files =
      false;  ///< without a program to ask: restart although files are newer than the daemon
};

/// Starts the host's containerd apart (containerd_trial.h) on the planned files. If that is impossible and
/// `restarts`, the files must be older than the daemon's start. Returns why containerd was not tried; absent:
/// it was, or the runtime is another one. Errors: Errc::refused with file, line and containerd's words.
Result<std::optional<std::string>> check_restart(const RestartCheck& check, bool restarts);

/// Does only the check of the files' age, for a plan; starts nothing. Passes if there is a program to ask.
Result<> foresee_restart(const RestartCheck& check, bool restarts);

/// Why containerd does not run with the planned files, in its own words; absent: it cannot be asked, or CRI
/// serves.
std::optional<std::string> containerds_own_words(const RestartCheck& check);

}  // namespace ferry::kata
