// SPDX-License-Identifier: Apache-2.0
// Shows before a restart that containerd's CRI will load. A restart reads all changes of containerd's files
// since its last start, not only Ferry's.
#pragma once

#include <optional>
#include <string>

#include "common/result.h"
#include "hostfs/host_fs.h"
#include "hostfs/host_writer.h"
#include "kata-manager/runtime/runtime_at_hand.h"

namespace ferry::kata {

struct RestartCheck {
  HostFs* host = nullptr;
  HostWriter* writer = nullptr;
  const RuntimeAtHand* runtime = nullptr;
  const RuntimePlan* plan = nullptr;
  bool accept_edited_files =
      false;  ///< without a program to ask: restart although files are newer than the daemon
};

/// Starts the host's containerd apart (containerd_trial.h) on the planned files. If that is impossible, the
/// files must be older than the daemon's start. Errors: Errc::refused with file, line and containerd's
/// words. Other runtimes pass unchecked.
Result<> check_restart(const RestartCheck& check);

/// Only the check of the files' age, for a plan; starts nothing. Passes if there is a program to ask.
Result<> foresee_restart(const RestartCheck& check);

/// Why containerd does not run with the planned files, in its own words; absent: it cannot be asked, or CRI
/// loads.
std::optional<std::string> containerds_own_words(const RestartCheck& check);

}  // namespace ferry::kata
