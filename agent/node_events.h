// SPDX-License-Identifier: Apache-2.0
// Events of the Node, each recorded once when its cause appears. Pure.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "agent/node_report.h"
#include "policy/kubernetes_files.h"

namespace ferry::agent {

struct NodeEvent {
  bool warning = false;  ///< type Warning, otherwise Normal
  std::string reason;    ///< "Blocked"
  std::string message;   ///< at most kMostReported bytes
  bool operator==(const NodeEvent&) const = default;
};

/// The events of `report` that the Node does not show yet. The Node's label and annotation are the memory, so
/// that a restarted agent records no event twice. `recorded_before`: warnings that are recorded already.
std::vector<NodeEvent> node_events(const policy::NodeObject& node, const DesiredState& desired_state,
                                   const HostSide& host, const NodeReport& report,
                                   const std::set<std::string>& recorded_before);

}  // namespace ferry::agent
