// SPDX-License-Identifier: Apache-2.0
// Labels that describe a node's GPUs, to select nodes by. They come from status.json and from tables, since a
// GPU on vfio has no driver that could be asked. Pure, but for the file.
//
// Keys under nvidia.com/ are those of NVIDIA's GPU feature discovery, with its meaning; other keys are under
// gpu-ferry.io/. docs/labels.md lists them. An unknown property has no label, and neither has a property in
// which the GPUs differ.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "agent/operator_compat/operands.h"
#include "api/host_status.h"
#include "common/result.h"
#include "hostfs/host_fs.h"

namespace ferry::agent {

/// How the labels reach the Node.
enum class FeatureWay {
  none,  ///< not at all
  node,  ///< the agent sets them
  file,  ///< Node Feature Discovery sets them, from a file on the host
  nfd,   ///< NFD sets them, from an object of the cluster (node_feature.h)
};
/// Absent: the word is none of "none", "node", "file", "nfd".
std::optional<FeatureWay> parse_feature_way(std::string_view word);

/// All feature labels of a node; Kubernetes accepts each key and value. Empty: the node has no GPU. Absent:
/// hostd has not reported the facts. `not_confidential`: a person declares that no GPU of the node is in
/// confidential mode, which hostd does not see on Hopper and newer.
std::optional<Labels> feature_labels(const api::HostStatus& host, bool not_confidential = false);

/// True for a key that the agent of this or another release may have set as a feature label. The chart's
/// admission policy lets the agent remove only these.
bool is_feature_label(std::string_view key);

/// The labels that only Ferry can have set: keys of feature_labels() under gpu-ferry.io/, without those that
/// NFD has set. `set_by_nfd` is NFD's annotation.
Labels own_features(const Labels& labels, std::string_view set_by_nfd);

// The file with the labels: Node Feature Discovery's worker reads the files of a host folder, and its master
// sets the labels in them. ABI: node-feature-discovery, source/local.
//
// A file whose writer is gone would count for ever. So a file expires after a day and is renewed before.

/// Relative to the host's root. If two files have the same key, the last by name wins: "gfd" of GPU feature
/// discovery wins over this file.
inline constexpr const char* kFeatureFile = "etc/kubernetes/node-feature-discovery/features.d/ferry";

inline constexpr std::chrono::hours kFeatureFileLife{24};
inline constexpr std::chrono::hours kFeatureFileRenewal{12};

/// A line for each label, and the time at which they expire.
std::string feature_file_text(const Labels& labels, std::chrono::system_clock::time_point until);

/// Replaces the file; it expires kFeatureFileLife after `now`. Without labels the file is removed.
Result<> write_feature_file(HostFs& host, const Labels& labels, std::chrono::system_clock::time_point now);

}  // namespace ferry::agent
