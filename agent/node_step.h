// SPDX-License-Identifier: Apache-2.0
// One look at everything, and what is to be done now: the agent's whole mind. Pure. Nothing is remembered
// from look to look that is not on the Node or in files, so that an agent that is killed anywhere and started
// again goes on.
//
// The order of a change, each from a new look: the operands are paused; once their pods are gone wanted.json
// is written; hostd says what it does; when that has ended they are resumed.
#pragma once

#include <chrono>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "agent/node_events.h"
#include "agent/node_report.h"
#include "agent/node_wish.h"
#include "agent/operands.h"
#include "agent/status_files.h"
#include "agent/two_owners.h"
#include "agent/wish_file.h"
#include "common/config_tree.h"
#include "policy/kubernetes_files.h"

namespace ferry {

/// All that the agent knows.
struct NodeView {
  NodeObject node;
  std::vector<ConfigText> configs;
  WishDefaults defaults;
  OtherPrograms others;
  HostSide host;
  std::chrono::seconds paused{0};  ///< for how long the operands' labels have been paused
  std::set<std::string> told;      ///< warnings that events have told
};

/// Pods of paused operands are waited for so long, then a change goes on without them.
inline constexpr std::chrono::seconds kPausePatience{120};

struct NodeStep {
  NodeWish wish;
  NodeReport report;
  /// What of the Node is to be changed; what is as it shall be is not in it.
  LabelChanges labels;
  LabelChanges annotations;
  std::vector<NodeEvent> events;
  /// To be written, once the labels are changed. Absent: wanted.json stays, or is to be removed.
  std::optional<WrittenWish> wish_file;
  bool remove_wish_file = false;
  std::vector<StatusFile> files;
  std::string waits_for;  ///< why wanted.json is not written yet, for people; empty: nothing
};

NodeStep node_step(const NodeView& view);

}  // namespace ferry
