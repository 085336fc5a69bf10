// SPDX-License-Identifier: Apache-2.0
// Labels for Node Feature Discovery, whose worker reads files of a folder of the host and whose master sets
// what they say. ABI: node-feature-discovery, source/local.
//
// A file whose writer has gone would be believed for ever: each is good for a day, and renewed before.
#pragma once

#include <chrono>
#include <string>

#include "agent/operands.h"
#include "common/host_fs.h"
#include "common/result.h"

namespace ferry {

/// Relative to the host's root. Of two files with the same key the later by name counts: GPU feature
/// discovery's, "gfd", goes before ours.
inline constexpr const char* kFeatureFile = "etc/kubernetes/node-feature-discovery/features.d/ferry";

inline constexpr std::chrono::hours kFeatureFileLife{24};
inline constexpr std::chrono::hours kFeatureFileRenewal{12};

/// A line for each label, believed until then.
std::string feature_file_text(const Labels& labels, std::chrono::system_clock::time_point until);

/// Replaces the file by one that is good from `now` on; without any label it is removed.
Result<> write_feature_file(HostFs& host, const Labels& labels, std::chrono::system_clock::time_point now);

}  // namespace ferry
