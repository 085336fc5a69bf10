// SPDX-License-Identifier: Apache-2.0
// Labels for Node Feature Discovery: its worker reads the files of a host folder, and its master sets the
// labels in them. ABI: node-feature-discovery, source/local.
//
// A file whose writer is gone would count for ever. So a file expires after a day and is renewed before.
#pragma once

#include <chrono>
#include <string>

#include "agent/operands.h"
#include "common/host_fs.h"
#include "common/result.h"

namespace ferry {

/// Relative to the host's root. If two files have the same key, the last by name wins: "gfd" of GPU feature
/// discovery wins over this file.
inline constexpr const char* kFeatureFile = "etc/kubernetes/node-feature-discovery/features.d/ferry";

inline constexpr std::chrono::hours kFeatureFileLife{24};
inline constexpr std::chrono::hours kFeatureFileRenewal{12};

/// A line for each label, and the time at which they expire.
std::string feature_file_text(const Labels& labels, std::chrono::system_clock::time_point until);

/// Replaces the file; it expires kFeatureFileLife after `now`. Without labels the file is removed.
Result<> write_feature_file(HostFs& host, const Labels& labels, std::chrono::system_clock::time_point now);

}  // namespace ferry
