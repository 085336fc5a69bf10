// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <optional>

#include "hostfs/host_fs.h"
#include "kata-manager/runtime/runtime_place.h"

namespace ferry::kata {

/// The host's program file of the containerd that serves a place. Its process's command line names the
/// place's socket or main file, or neither if both are the defaults. If the file was replaced since the
/// start, the new file is meant. Absent: no such process, or several (another one in a container).
std::optional<std::filesystem::path> running_containerd(const HostFs& host, const RuntimePlace& place);

}  // namespace ferry::kata
