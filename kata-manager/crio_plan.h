// SPDX-License-Identifier: Apache-2.0
// Our runtimes in CRI-O: one drop-in that is ours alone, which CRI-O reads on being told to.
#pragma once

#include <filesystem>
#include <span>
#include <vector>

#include "common/result.h"
#include "kata-manager/config_files.h"
#include "kata-manager/containerd_plan.h"
#include "kata-manager/runtime_handler.h"
#include "kata-manager/toml.h"

namespace ferry {

/// As plan_containerd(), for the folder of CRI-O's drop-ins; `after` of the plan stays empty.
/// Errors: Errc::invalid_config, a file of CRI-O's cannot be read, and it would not start; Errc::refused, a
/// name is taken by a runtime that is not ours; Errc::unsupported, a shim's name that CRI-O does not take, or
/// a snapshotter, which it does not know.
Result<RuntimePlan> plan_crio(const std::filesystem::path& folder, const ConfigFiles& files,
                              std::span<const RuntimeHandler> handlers);

/// What our drop-in says of one of them: the table crio.runtime.runtimes.NAME.
TomlTable crio_entry_of(const RuntimeHandler& handler);

/// Our runtimes in CRI-O's files, by name.
Result<std::vector<PlacedRuntime>> placed_in_crio(const std::filesystem::path& folder,
                                                  const ConfigFiles& files);

}  // namespace ferry
