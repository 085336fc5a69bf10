// SPDX-License-Identifier: Apache-2.0
// The host's own containerd, started apart from the live one to find out if CRI would load.
//
// containerd starts, and leaves CRI out, where CRI's own check refuses its configuration; `config dump` does
// not show it. So the program is started on copies of the files. It loads its plugins and ends before it
// serves: the copies require a plugin that does not exist. ABI: containerd's `required_plugins`.
//
// Nothing of the live daemon is touched: root, state and sockets are below a folder of Ferry's, and every
// plugin with a state of its own elsewhere is off.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <span>
#include <string>

#include "common/host_fs.h"
#include "common/host_writer.h"
#include "common/result.h"
#include "kata-manager/containerd_config.h"

namespace ferry {

/// Below the host's root, and the program's; removed after each trial.
inline constexpr const char* kTrialFolder = "var/lib/ferry-hostd/kata/trial";
inline constexpr std::chrono::seconds kTrialDeadline{20};

/// Why the program would serve no CRI with these files, in its own words; absent: CRI would load. The first
/// file is the main one, and the others are what it imports, in order.
/// Errors: the program cannot be asked (HostWriter::transcript()), it has not ended by the deadline, or it
/// says what is not understood (Errc::malformed_host).
Result<std::optional<std::string>> why_no_cri(HostFs& host, HostWriter& writer,
                                              const std::filesystem::path& program,
                                              std::span<const ContainerdFile> files,
                                              const std::filesystem::path& folder = kTrialFolder);

/// The configuration that `config dump` gave, changed so that a containerd started with it touches nothing
/// outside `folder` and ends once its plugins are loaded.
TomlTable kept_apart(TomlTable dump, const std::filesystem::path& folder);

/// Where the files have a key that containerd names in `backquotes`: "/etc/containerd/config.toml:13"; empty:
/// nowhere.
std::string place_of_reason(const HostFs& host, std::span<const ContainerdFile> files,
                            std::string_view reason);

}  // namespace ferry
