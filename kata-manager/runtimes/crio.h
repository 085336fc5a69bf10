// SPDX-License-Identifier: Apache-2.0
// Runs CRI-O's own program to check Ferry's files. `crio config` reads and checks the files and prints the
// result, with built-in values as comments; it starts nothing. ABI: crio(8), `--config`, `--config-dir`,
// `config`.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "hostfs/host_writer.h"
#include "kata-manager/runtimes/config_files.h"
#include "kata-manager/runtimes/container_runtime.h"
#include "kata-manager/runtimes/containerd_plan.h"
#include "kata-manager/toml/toml.h"

namespace ferry::kata {

/// The table `crio` as the program reads it from the drop-ins and the main file beside their folder; absent:
/// it cannot read them, or refuses them. Errors: as HostWriter::output(); Errc::invalid_config: its answer is
/// not TOML.
Result<std::optional<TomlTable>> crio_configuration(HostWriter& writer, const std::filesystem::path& program,
                                                    const std::filesystem::path& folder);

/// The output of `crio config` as TOML, with commented runtimes made plain. CRI-O comments its built-in
/// runtimes only while no file adds one.
std::string with_built_in_runtimes(std::string_view printed);

/// A difference between the program's reading and the plan; absent: Ferry's runtimes are as written,
/// leaving ones are gone, and the rest is unchanged. `before` and `after` are from
/// crio_configuration(). Without `before`, only Ferry's runtimes are checked.
std::optional<std::string> unplanned(const std::optional<TomlTable>& before,
                                     const std::optional<TomlTable>& after,
                                     const std::vector<std::string>& leaving,
                                     std::span<const RuntimeHandler> handlers);

// Plans Ferry's runtimes in CRI-O: a drop-in of Ferry, which CRI-O reads on a reload.

/// A file that CRI-O reads; a missing file and a folder have no settings.
Result<TomlTable> read_crio_file(const std::filesystem::path& path, const ConfigFiles& files);

/// plan_containerd() for CRI-O's folder of drop-ins; the plan's `after` stays empty. Copies of Ferry's
/// runtimes in other files leave with them. Errors:
/// Errc::invalid_config: an unreadable file, with which CRI-O would not start; Errc::refused: another
/// program's runtime has the name; Errc::unsupported: a shim's name that CRI-O refuses, or a snapshotter,
/// which CRI-O lacks.
Result<RuntimePlan> plan_crio(const std::filesystem::path& folder, const ConfigFiles& files,
                              std::span<const RuntimeHandler> handlers);

/// Ferry's runtimes in CRI-O's files, by name: those of its drop-in, and copies under other names or in other
/// files. Errors: as plan_crio() for an unreadable file.
Result<std::vector<ConfiguredRuntime>> configured_in_crio(const std::filesystem::path& folder,
                                                          const ConfigFiles& files);

}  // namespace ferry::kata
