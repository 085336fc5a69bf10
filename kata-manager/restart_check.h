// SPDX-License-Identifier: Apache-2.0
// A restart reads everything that has changed in containerd's files since its last start, not only Ferry's
// lines. So it is shown first that CRI will load.
#pragma once

#include <optional>
#include <string>

#include "common/host_fs.h"
#include "common/host_writer.h"
#include "common/result.h"
#include "kata-manager/runtime_at_hand.h"

namespace ferry {

struct RestartCheck {
  HostFs* host = nullptr;
  HostWriter* writer = nullptr;
  const RuntimeAtHand* runtime = nullptr;
  const RuntimePlan* plan = nullptr;
  bool accept_edited_files =
      false;  ///< without the program: restart although files are newer than the daemon
};

/// Starts the host's own containerd apart (containerd_trial.h) on the files as planned. Where it cannot be
/// asked, the files must be older than the daemon's start. Errors: Errc::refused, with file, line and
/// containerd's own words. Nothing is checked of another runtime than containerd.
Result<> check_restart(const RestartCheck& check);

/// The second rule alone, for a plan, which starts nothing: nothing is checked where there is a program.
Result<> foresee_restart(const RestartCheck& check);

/// Why containerd does not come back with the planned files, in its own words; absent: it cannot be asked, or
/// CRI loads.
std::optional<std::string> containerds_own_words(const RestartCheck& check);

}  // namespace ferry
