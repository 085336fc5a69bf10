// SPDX-License-Identifier: Apache-2.0
// Labels of a node for the Kata runtimes with which pods can start on it. The chart's RuntimeClasses select
// nodes by them.
#pragma once

#include <set>
#include <string>

#include "agent/operands.h"

namespace ferry {

/// The new labels: "ready" for each handler in `ready`, and none for other handlers. A handler whose name
/// makes no valid label (more than 58 characters) has none.
LabelChanges kata_labels(const Labels& labels, const std::set<std::string>& ready);

}  // namespace ferry
