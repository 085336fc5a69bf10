// SPDX-License-Identifier: Apache-2.0
// Which bytes make containerd know our runtimes and change nothing else: planned from what is there, and
// proven by prediction (containerd_config.h) before anything is written.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/result.h"
#include "kata-manager/config_files.h"
#include "kata-manager/containerd_config.h"
#include "kata-manager/containerd_release.h"
#include "kata-manager/file_change.h"
#include "kata-manager/placed_runtime.h"
#include "kata-manager/runtime_handler.h"

namespace ferry {

struct ContainerdSetup {
  ContainerdRelease release;
  std::filesystem::path main = "/etc/containerd/config.toml";
  /// Another program writes the main file anew at each start (k3s, rke2): only what it imports can be added
  /// to.
  bool main_is_rendered = false;
  std::map<std::string, std::string> placeholders = {};  ///< RuntimePlace::placeholders
};

struct RuntimePlan {
  std::vector<FileChange> changes;   ///< empty: it is so already
  std::vector<std::string> notes;    ///< what somebody should know of the place that was chosen
  std::vector<std::string> leaving;  ///< runtimes of ours that the files have now and will not have
  ContainerdOutcome after;           ///< what is predicted once they are made
  /// containerd's files as they are; empty of another runtime.
  std::vector<ContainerdFile> files_now = {};
};

/// The runtimes of ours shall be these, and no others; none: as before the first of them. Each stays in the
/// file it is in as long as that can be proven right.
/// Errors: Errc::refused where no place could be found in which they would count and change nothing else,
/// with what would change; where a name is taken by somebody else; or where containerd would not start as it
/// is. Errc::unsupported: this release has no snapshotter for one runtime alone. Errc::invalid_config: a file
/// cannot be read.
Result<RuntimePlan> plan_containerd(const ContainerdSetup& setup, const ConfigFiles& files,
                                    std::span<const RuntimeHandler> handlers);

/// Our runtimes in containerd's files, by name; also those in a drop-in of ours that is not imported any
/// more. Errors: Errc::invalid_config, a file with a block of ours cannot be read.
Result<std::vector<PlacedRuntime>> placed_in_containerd(const ContainerdSetup& setup,
                                                        const ConfigFiles& files);

}  // namespace ferry
