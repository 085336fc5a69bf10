// SPDX-License-Identifier: Apache-2.0
// Plans Ferry's runtimes in CRI-O: a drop-in of Ferry, which CRI-O reads on a reload.
#pragma once

#include <filesystem>
#include <span>
#include <vector>

#include "common/result.h"
#include "kata-manager/classes/runtime_handler.h"
#include "kata-manager/containerd/containerd_plan.h"
#include "kata-manager/runtime/config_files.h"
#include "kata-manager/toml/toml.h"

namespace ferry::kata {

/// plan_containerd() for CRI-O's folder of drop-ins; the plan's `after` stays empty. Errors:
/// Errc::invalid_config: an unreadable file, with which CRI-O would not start; Errc::refused: another
/// program's runtime has the name; Errc::unsupported: a shim's name that CRI-O refuses, or a snapshotter,
/// which CRI-O lacks.
Result<RuntimePlan> plan_crio(const std::filesystem::path& folder, const ConfigFiles& files,
                              std::span<const RuntimeHandler> handlers);

/// A handler's table in Ferry's drop-in: crio.runtime.runtimes.NAME.
TomlTable crio_entry_of(const RuntimeHandler& handler);

/// Ferry's runtimes in CRI-O's files, by name.
Result<std::vector<PlacedRuntime>> placed_in_crio(const std::filesystem::path& folder,
                                                  const ConfigFiles& files);

}  // namespace ferry::kata
