// SPDX-License-Identifier: Apache-2.0
// Labels that describe a node's GPUs, to select nodes by. They come from status.json and from tables, since a
// GPU on vfio has no driver that could be asked. Pure.
//
// Keys under nvidia.com/ are those of NVIDIA's GPU feature discovery, with its meaning; other keys are under
// gpu-ferry.io/. docs/labels.md lists them. An unknown property has no label, and neither has a property in
// which the GPUs differ.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "agent/operator_compat/operands.h"
#include "api/host_status.h"

namespace ferry::agent {

/// How the labels reach the Node.
enum class FeatureWay {
  none,  ///< not at all
  node,  ///< the agent sets them
  nfd,   ///< Node Feature Discovery (NFD) sets them, from an object of the cluster (node_feature.h)
};
/// Absent: the word is none of "none", "node", "nfd".
std::optional<FeatureWay> parse_feature_way(std::string_view word);

/// All feature labels of a node; Kubernetes accepts each key and value. Empty: the node has no GPU. Absent:
/// hostd has not reported the facts. `not_confidential`: a person declares that no GPU of the node is in
/// confidential mode. A register that shows such a mode counts more.
std::optional<Labels> feature_labels(const api::HostStatus& host, bool not_confidential = false);

/// True for a key that the agent of this or another release may have set as a feature label. The chart's
/// admission policy lets the agent remove only these.
bool is_feature_label(std::string_view key);

/// Makes the desired labels of a confidential mode those that the agent has set already, according to
/// `record`: it neither sets, changes nor removes one. The label of GPUs without such a mode stays desired.
void leave_mode_labels(const Labels& record, Labels& desired);

/// The labels that only Ferry can have set: keys of feature_labels() under gpu-ferry.io/, without those that
/// NFD has set. `set_by_nfd` is NFD's annotation.
Labels own_features(const Labels& labels, std::string_view set_by_nfd);

}  // namespace ferry::agent
