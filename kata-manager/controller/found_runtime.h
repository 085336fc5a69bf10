// SPDX-License-Identifier: Apache-2.0
// This host's container runtime with all inputs of a plan, containerd and CRI-O alike.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/result.h"
#include "hostfs/host_fs.h"
#include "hostfs/host_writer.h"
#include "kata-manager/configuration/kata_shim.h"
#include "kata-manager/runtimes/container_runtime.h"
#include "kata-manager/runtimes/containerd_plan.h"
#include "kata-manager/runtimes/containerd_release.h"
#include "kata-manager/runtimes/runtime_place.h"

namespace ferry::kata {

struct FoundRuntime {
  RuntimePlace place;
  ContainerdRelease release;  ///< containerd's; unused for CRI-O
  std::string release_by;     ///< its source: "/usr/bin/containerd, which containerd.service starts"
  /// The runtime's own program, if it can read the files for a check.
  std::optional<std::filesystem::path> program;
  std::string no_program;  ///< why there is none; empty: there is, or none is needed
  std::vector<std::string> notes;
  VersionOf version_of = {};  ///< asks this host's Kata shims

  /// "containerd 1.7.24", "cri-o"
  std::string text() const;
};

/// containerd's release is `said`, else that of the program which a restart starts: its unit's or, if that
/// is not known, the running one (/proc). A program at containerd's usual path counts only if the daemon
/// gives no release or the same one, because it may belong to another installation. Otherwise the daemon's
/// own answer counts. Errors: as find_runtime(); Errc::not_found: the release is unknown. `writer` must
/// outlive the result.
Result<FoundRuntime> found_runtime(const HostFs& host, HostWriter& writer, ContainerRuntime& running,
                                   RuntimePlace place, const std::optional<std::string>& said);

/// Calls plan_containerd(), plan_crio() or plan_k0s(). If the runtime's program cannot be asked, a note
/// says that only Ferry's model proves the plan.
Result<RuntimePlan> plan_runtime(const HostFs& host, const FoundRuntime& runtime,
                                 std::span<const RuntimeHandler> handlers);

/// Calls configured_in_containerd(), configured_in_crio() or configured_in_k0s().
Result<std::vector<ConfiguredRuntime>> configured_runtimes(const HostFs& host, const FoundRuntime& runtime);

/// Compares the program's present reading of the files with a later one; see ChangeContext::contradiction.
/// Empty: the program cannot be asked, or k0s writes the files only later. The arguments must outlive the
/// result.
std::function<Result<std::optional<std::string>>()> config_dump_check(
    HostWriter& writer, const FoundRuntime& runtime, const RuntimePlan& plan,
    std::span<const RuntimeHandler> handlers);

// Runs containerd's own program with `--version` and `config dump`, which start nothing. Its answer checks
// the prediction, and includes the distribution's built-in values.

/// The host's program file of the containerd that serves a place. Its process's command line names the
/// place's socket or main file, or neither if the main file is the default and the socket is that of the
/// files. If the file was replaced since the start, the new file is meant. Absent: no such process, or
/// several (another one in a container).
std::optional<std::filesystem::path> running_containerd(const HostFs& host, const RuntimePlace& place);

/// The release of a containerd program. Errors: as HostWriter::output() and ContainerdRelease::parse().
Result<ContainerdRelease> containerd_release(HostWriter& writer, const std::filesystem::path& program);

/// Each plugin's section, built-in values included, as the program reads the files at `main`; absent: it
/// cannot read them. Some faults that end a daemon are missing here; a trial start finds them
/// (restart_check.h). Errors: as HostWriter::output().
Result<std::optional<TomlTable>> containerd_plugins(HostWriter& writer, const std::filesystem::path& program,
                                                    const std::filesystem::path& main);

/// A difference between the program's reading and the plan; absent: Ferry's runtimes are as planned, and
/// the rest is unchanged. `before` and `after` are from containerd_plugins(). Without `before`, only Ferry's
/// runtimes are checked.
std::optional<std::string> unplanned(const std::optional<TomlTable>& before,
                                     const std::optional<TomlTable>& after, const RuntimePlan& plan,
                                     std::span<const RuntimeHandler> handlers,
                                     const ContainerdRelease& release);

}  // namespace ferry::kata
