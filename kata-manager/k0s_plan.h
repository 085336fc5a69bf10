// SPDX-License-Identifier: Apache-2.0
// Our runtimes in k0s's containerd: one drop-in that is ours alone. k0s merges the drop-ins of its folder
// into the file that it writes for its containerd, watches the folder, and has them read by itself.
#pragma once

#include <filesystem>
#include <span>
#include <vector>

#include "common/result.h"
#include "kata-manager/config_files.h"
#include "kata-manager/containerd_plan.h"
#include "kata-manager/containerd_release.h"
#include "kata-manager/runtime_handler.h"

namespace ferry {

/// As plan_containerd(), for the folder of k0s's drop-ins; `after` of the plan stays empty. The drop-in has
/// the version of what k0s writes for its containerd, since k0s refuses another one; where k0s has written
/// nothing yet that which the release has of its own.
/// Errors: Errc::refused, a name is taken by a runtime that is not ours, or k0s leaves its containerd's
/// configuration to somebody else; Errc::invalid_config, a drop-in cannot be read; Errc::unsupported, a
/// snapshotter for one runtime, of a release that has none.
Result<RuntimePlan> plan_k0s(const ContainerdRelease& release, const std::filesystem::path& folder,
                             const ConfigFiles& files, std::span<const RuntimeHandler> handlers);

/// Our runtimes in k0s's folder, by name.
Result<std::vector<PlacedRuntime>> placed_in_k0s(const std::filesystem::path& folder,
                                                 const ConfigFiles& files);

/// What our drop-in says of runtimes, by name; empty: it is not there. Errc::invalid_config: it cannot be
/// read.
Result<TomlTable> runtimes_in_k0s(const std::filesystem::path& folder, const ConfigFiles& files);

}  // namespace ferry
