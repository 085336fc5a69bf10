// SPDX-License-Identifier: Apache-2.0
// Ownership of feature labels on a Node. GPU feature discovery, Node Feature Discovery and people may set the
// same keys. The annotation gpu-ferry.io/feature-labels holds the labels that the agent has set, with their
// values, as a JSON object of strings; each patch writes both. A label is the agent's while it has the
// recorded value. Another value makes it its writer's, until that writer removes it. Pure.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "agent/operator_compat/operands.h"

namespace ferry::agent {

std::string label_record_text(const Labels& record);

/// Empty if the annotation was not written by the agent.
Labels read_label_record(std::string_view annotation);

struct OwnLabels {
  LabelChanges changes;               ///< to the agent's labels, and to labels that the Node lacks
  std::optional<std::string> record;  ///< new annotation; absent: none
};

/// The changes that give a node the desired labels, except those of other writers, and remove the agent's
/// others. `record`: the annotation without keys that the agent can never have set, since each writer of the
/// Node may write it. `ours_by_name`: labels that are the agent's even without a record, which may be lost.
OwnLabels own_labels(const Labels& labels, Labels record, const Labels& desired,
                     const Labels& ours_by_name = {});

// Labels of a node for the Kata runtimes with which pods can start on it. The chart's RuntimeClasses select
// nodes by them.

/// The new labels: "ready" for each handler in `ready`, and none for other handlers. A handler whose name
/// makes no valid label (more than 58 characters) has none.
LabelChanges kata_labels(const Labels& labels, const std::set<std::string>& ready);

}  // namespace ferry::agent
