// SPDX-License-Identifier: Apache-2.0
// Records of versions of Ferry that kept them in folders which other containers could write: run/ferry had
// the device plugin, and var/lib/ferry has the agent. Such a record may be planted, so that none is obeyed.
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "hostfs/host_fs.h"

namespace ferry {

/// Why `file` is not read (Errc::refused), and how a person puts it into `place`, the folder that this
/// version reads. `writer`: who could have planted it. `without`: the result where it is removed instead.
Error earlier_record(const std::filesystem::path& file, const std::filesystem::path& place,
                     std::string_view writer, std::string_view without);

/// An error for each earlier record below run/ferry, one for a whole folder; hostd logs them at its start.
std::vector<Error> earlier_records(const HostFs& host);

}  // namespace ferry
