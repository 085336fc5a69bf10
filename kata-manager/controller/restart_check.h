// SPDX-License-Identifier: Apache-2.0
// Shows before a start that containerd's CRI will serve. A start reads all changes of containerd's files
// since its last one, not only Ferry's.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <span>
#include <string>

#include "common/result.h"
#include "hostfs/host_fs.h"
#include "hostfs/host_writer.h"
#include "kata-manager/controller/kata_install.h"
#include "kata-manager/controller/runtime_change.h"
#include "kata-manager/runtimes/containerd_config.h"

namespace ferry::kata {

// Starts the host's containerd apart from the live daemon, to test whether it would serve CRI.
//
// `config dump` does not show that: if CRI's service cannot be created, containerd runs without it, and if
// one of its servers cannot listen, it ends. So the program runs on copies of the files, twice. First the
// copies require a plugin that does not exist: it loads its plugins and ends. Then it serves for some
// seconds. ABI: containerd's `required_plugins`.
//
// The live daemon is not touched: root, state and sockets are in Ferry's folder, servers on TCP keep their
// address and get a port of the kernel's choice, and a plugin with state elsewhere is off, or has it in
// that folder.

/// A path below the host's root, also for the program. Removed after each trial.
inline constexpr const char* kTrialFolder = "var/lib/ferry-hostd/kata/trial";
/// For `config dump` and for loading the plugins.
inline constexpr std::chrono::seconds kTrialDeadline{20};
/// CRI's servers begin to listen a moment after the plugins are loaded; on a slow host this counts on top of
/// twice the time that the loading took.
inline constexpr std::chrono::seconds kTrialServes{3};

/// Why containerd would serve no CRI.
struct TrialFault {
  std::string reason;  ///< in its own words, without places in the copies
  std::string place;   ///< "FILE:LINE" of the host; empty: unknown
};

/// Absent: CRI would be served. The first file is the main file; the others are its imports, in order.
/// Errors: as HostWriter::transcript(); plugins not loaded by the deadline; Errc::malformed_host: unknown
/// output.
Result<std::optional<TrialFault>> why_no_cri(HostFs& host, HostWriter& writer,
                                             const std::filesystem::path& program,
                                             std::span<const ContainerdFile> files,
                                             const std::filesystem::path& folder = kTrialFolder,
                                             std::chrono::milliseconds serves = kTrialServes);

/// Starts the host's containerd apart (why_no_cri()) on the planned files. If that is impossible and
/// `restarts`, the files must be older than the daemon's start. Returns why containerd was not tried; absent:
/// it was, or the runtime is another one. Errors: Errc::refused with file, line and containerd's words.
Result<std::optional<std::string>> check_restart(const ChangeContext& context, HostWriter& writer,
                                                 const KataChange& change, bool restarts);

/// Does only the check of the files' age, for a plan; starts nothing. Passes if there is a program to ask.
Result<> foresee_restart(const ChangeContext& context, const KataChange& change, bool restarts);

/// Why containerd does not run with the planned files, in its own words; absent: it cannot be asked, or CRI
/// serves.
std::optional<std::string> containerds_own_words(const ChangeContext& context, HostWriter& writer,
                                                 const KataChange& change);

}  // namespace ferry::kata
