// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <optional>

#include "common/host_fs.h"
#include "kata-manager/runtime_place.h"

namespace ferry {

/// The program file, on the host, of the containerd that serves a place: of the processes that are called so
/// the one whose command line names its socket or its main file, or neither where both are the usual ones.
/// One that was replaced since it was started is the new one. Absent: none is seen, or several are (another
/// one in a container), so that it is not known.
std::optional<std::filesystem::path> running_containerd(const HostFs& host, const RuntimePlace& place);

}  // namespace ferry
