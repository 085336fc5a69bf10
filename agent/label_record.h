// SPDX-License-Identifier: Apache-2.0
// Labels of features on a Node to which others may set the same: GPU feature discovery, Node Feature
// Discovery, people. The annotation gpu-ferry.io/feature-labels has those that the agent has set, with their
// values, as a JSON object of texts, and is written together with them. A label is ours while it has the
// value that is recorded; whoever gives it another has it from then on, and is given it back by taking it
// off. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "agent/operands.h"

namespace ferry {

std::string label_record_text(const Labels& record);

/// Nothing where it is not of the agent's making.
Labels read_label_record(std::string_view annotation);

struct OwnLabels {
  LabelChanges changes;               ///< to ours, and to those that nobody has set
  std::optional<std::string> record;  ///< the annotation as it shall be then; absent: none
};

/// What is to be done to a node with these labels so that it has the wanted ones, as far as they are not
/// another's, and no other of ours. `record`: what the annotation says, less what can never have been ours,
/// for whoever may write to the Node may write that too. `ours_by_name` are ours though the annotation does
/// not speak of them: it may have been lost.
OwnLabels own_labels(const Labels& labels, Labels record, const Labels& wanted,
                     const Labels& ours_by_name = {});

}  // namespace ferry
