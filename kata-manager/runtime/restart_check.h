// SPDX-License-Identifier: Apache-2.0
// Shows before a restart that containerd's CRI will load. A restart reads all changes of containerd's files
// since its last start, not only Ferry's.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <span>
#include <string>

#include "common/result.h"
#include "hostfs/host_fs.h"
#include "hostfs/host_writer.h"
#include "kata-manager/containerd/containerd_config.h"
#include "kata-manager/runtime/found_runtime.h"

namespace ferry::kata {

// Starts the host's containerd apart from the live daemon, to test whether CRI would load.
//
// If CRI's check refuses its configuration, containerd starts without CRI; `config dump` does not show
// that. So the program runs on copies of the files. The copies require a plugin that does not exist, so it
// loads its plugins and exits before it serves. ABI: containerd's `required_plugins`.
//
// The live daemon is not touched: root, state and sockets are in Ferry's folder, and every plugin with
// state elsewhere is off.

/// A path below the host's root, also for the program. Removed after each trial.
inline constexpr const char* kTrialFolder = "var/lib/ferry-hostd/kata/trial";
inline constexpr std::chrono::seconds kTrialDeadline{20};

/// Why the program would serve no CRI with these files, in its own words; absent: CRI would load. The first
/// file is the main file; the others are its imports, in order. Errors: as HostWriter::transcript(); no
/// exit by the deadline; Errc::malformed_host: unknown output.
Result<std::optional<std::string>> why_no_cri(HostFs& host, HostWriter& writer,
                                              const std::filesystem::path& program,
                                              std::span<const ContainerdFile> files,
                                              const std::filesystem::path& folder = kTrialFolder);

struct RestartCheck {
  HostFs* host = nullptr;
  HostWriter* writer = nullptr;
  const FoundRuntime* runtime = nullptr;
  const RuntimePlan* plan = nullptr;
  bool accept_edited_files =
      false;  ///< without a program to ask: restart although files are newer than the daemon
};

/// Starts the host's containerd apart (above) on the planned files. If that is impossible, the
/// files must be older than the daemon's start. Errors: Errc::refused with file, line and containerd's
/// words. Other runtimes pass unchecked.
Result<> check_restart(const RestartCheck& check);

/// Does only the check of the files' age, for a plan; starts nothing. Passes if there is a program to ask.
Result<> foresee_restart(const RestartCheck& check);

/// Why containerd does not run with the planned files, in its own words; absent: it cannot be asked, or CRI
/// loads.
std::optional<std::string> containerds_own_words(const RestartCheck& check);

}  // namespace ferry::kata
