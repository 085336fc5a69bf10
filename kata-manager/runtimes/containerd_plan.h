// SPDX-License-Identifier: Apache-2.0
// Plans the edit that adds Ferry's runtimes to containerd and changes nothing else. The plan is verified by
// prediction (containerd_config.h) before any write.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/result.h"
#include "kata-manager/runtimes/config_files.h"
#include "kata-manager/runtimes/container_runtime.h"
#include "kata-manager/runtimes/containerd_config.h"
#include "kata-manager/runtimes/containerd_release.h"
#include "kata-manager/runtimes/runtime_place.h"
#include "kata-manager/toml/toml.h"

namespace ferry::kata {

/// A runtime of Ferry in a configuration file. CRI-O's file has no annotations: it passes all.
struct ConfiguredRuntime : RuntimeHandler {
  std::filesystem::path file;
  std::string type = {};  ///< containerd's `runtime_type`; empty in CRI-O
  /// The table has lost Ferry's marks, because another program rewrote the file, or copied the table.
  bool unmarked = false;
  bool operator==(const ConfiguredRuntime&) const = default;

  /// The handler that would produce this runtime.
  const RuntimeHandler& handler() const { return *this; }
};

/// Reads an entry of containerd's table of runtimes that entry_of() made.
ConfiguredRuntime configured_runtime(const std::string& name, const std::filesystem::path& file,
                                     const TomlTable& entry);

struct RuntimePlan {
  std::vector<FileChange> changes;   ///< empty: no change is needed
  std::vector<std::string> notes;    ///< for the administrator, about the chosen place
  std::vector<std::string> leaving;  ///< Ferry's runtimes that the change removes
  ContainerdOutcome after;           ///< predicted, after the changes
  /// containerd's present files; empty for other runtimes.
  std::vector<ContainerdFile> files_now = {};
};

/// Plans that Ferry's runtimes are these and no others; with none, the files become as before the first. A
/// runtime stays in its file while that can be verified.
/// Errors: Errc::refused: no place works without other changes (the error names one), another program has a
/// runtime of the name, or containerd would not start as it is. Errc::unsupported: the release has no
/// snapshotter for a single runtime. Errc::invalid_config: an unreadable file.
Result<RuntimePlan> plan_containerd(const ContainerdRelease& release, const RuntimePlace& place,
                                    const ConfigFiles& files, std::span<const RuntimeHandler> handlers);

/// Plans that a drop-in with Ferry's runtimes alone (k0s, CRI-O) has the content `after`; absent: that it
/// goes. `ours`: the names of the runtimes in it now. Errors: read errors.
Result<RuntimePlan> plan_drop_in(const std::filesystem::path& path, std::optional<std::string> after,
                                 const std::vector<std::string>& ours, const ConfigFiles& files,
                                 std::span<const RuntimeHandler> handlers);

/// The first line of such a drop-in.
inline constexpr const char* kDropInHeader =
    "# Written by ferry; changes are lost. `ferry kata uninstall` takes it away.\n";

/// Ferry's runtimes in containerd's files by name, including those in a drop-in that is no longer imported.
/// Errors: Errc::invalid_config: a file with a block of Ferry cannot be read.
Result<std::vector<ConfiguredRuntime>> configured_in_containerd(const ContainerdRelease& release,
                                                                const RuntimePlace& place,
                                                                const ConfigFiles& files);

}  // namespace ferry::kata
