// SPDX-License-Identifier: Apache-2.0
// What a node's GPUs are, as labels to choose nodes by: from what hostd says of its host and from tables,
// since of GPUs on vfio no driver can be asked. Pure.
//
// Keys under nvidia.com/ are those of NVIDIA's GPU feature discovery, with its meaning; for what it has no
// word there is gpu-ferry.io/. docs/labels.md lists them. What is not known has no label, and neither has
// that in which the GPUs differ: nothing is said of a node that one of its GPUs is not.
#pragma once

#include <optional>
#include <string_view>

#include "agent/operands.h"
#include "agent/seen_host.h"

namespace ferry {

/// How the labels come to the Node.
enum class FeatureWay {
  none,  ///< not at all
  node,  ///< the agent sets them
  file,  ///< Node Feature Discovery does, from a file on the host (feature_file.h)
  nfd,   ///< it does, from an object of the cluster (node_feature.h)
};
/// "none", "node", "file", "nfd"
std::optional<FeatureWay> parse_feature_way(std::string_view word);

/// All of a node; each key and value is one that Kubernetes takes. None where there is no GPU. Absent: hostd
/// has not said what they are made from.
std::optional<Labels> feature_labels(const SeenHost& host);

/// Whether the agent may have set a label of this key for what the GPUs are, in this release or another. The
/// chart's admission policy lets it take off these and no others.
bool is_feature_label(std::string_view key);

/// Those of a node that nobody else calls so: keys of feature_labels() under gpu-ferry.io/, but for those
/// that NFD has set, on our word or another's, as its annotation says.
Labels own_features(const Labels& labels, std::string_view set_by_nfd);

}  // namespace ferry
