// SPDX-License-Identifier: Apache-2.0
// A node's labels that say which Kata runtimes pods can be started with there: the RuntimeClasses of the
// chart are scheduled by them.
#pragma once

#include <set>
#include <string>

#include "agent/operands.h"

namespace ferry {

/// What the labels shall be: "ready" for each of these handlers, and none for any other. A handler whose name
/// makes no label (more than 58 characters) has none.
LabelChanges kata_labels(const Labels& labels, const std::set<std::string>& ready);

}  // namespace ferry
