// SPDX-License-Identifier: Apache-2.0
// What is told once, when it comes about: Events of the Node. Pure.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "agent/node_report.h"
#include "policy/kubernetes_files.h"

namespace ferry {

struct NodeEvent {
  bool warning = false;  ///< its type is Warning, else Normal
  std::string reason;    ///< "HostRefused"
  std::string message;   ///< at most kMostTold bytes
  bool operator==(const NodeEvent&) const = default;
};

/// The events of what `report` says and the Node, as it is, does not show yet: the label and the annotation
/// are the memory, so that an agent that starts again tells nothing twice. `told` are the warnings that have
/// been told.
std::vector<NodeEvent> node_events(const NodeObject& node, const NodeWish& wish, const HostSide& host,
                                   const NodeReport& report, const std::set<std::string>& told_before);

}  // namespace ferry
