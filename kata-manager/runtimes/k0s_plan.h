// SPDX-License-Identifier: Apache-2.0
// Plans Ferry's runtimes in k0s's containerd: a drop-in of Ferry. k0s watches its folder of drop-ins,
// merges them into the file that it writes, and makes its containerd read that.
#pragma once

#include <filesystem>
#include <span>
#include <vector>

#include "common/result.h"
#include "kata-manager/runtimes/config_files.h"
#include "kata-manager/runtimes/container_runtime.h"
#include "kata-manager/runtimes/containerd_plan.h"
#include "kata-manager/runtimes/containerd_release.h"

namespace ferry::kata {

/// plan_containerd() for k0s's folder of drop-ins; the plan's `after` stays empty. The drop-in has the
/// version of k0s's own file, because k0s refuses another version; without such a file, the release's
/// default. Errors: Errc::refused: another program's runtime has the name, or k0s does not manage its
/// containerd's configuration; Errc::invalid_config: an unreadable drop-in; Errc::unsupported: the release
/// has no snapshotter for a single runtime.
Result<RuntimePlan> plan_k0s(const ContainerdRelease& release, const std::filesystem::path& folder,
                             const ConfigFiles& files, std::span<const RuntimeHandler> handlers);

/// Ferry's runtimes in k0s's folder, by name. Errc::invalid_config: its drop-in cannot be read.
Result<std::vector<ConfiguredRuntime>> configured_in_k0s(const std::filesystem::path& folder,
                                                         const ConfigFiles& files);

}  // namespace ferry::kata
