// SPDX-License-Identifier: Apache-2.0
// A cache of the policies in a text. Each reconcile needs the same few texts, and parsing their YAML was its
// most expensive part.
#pragma once

#include <memory>

#include "common/config/config_tree.h"
#include "common/result.h"
#include "policy/policy.h"

namespace ferry::agent {

/// Begins a reconcile of this thread. Texts that the last reconcile did not need, such as old versions, are
/// dropped.
void drop_unused_policies();

/// The cached result of read_policies().
std::shared_ptr<const Result<policy::PolicyFile>> known_policies(const ConfigText& source);

}  // namespace ferry::agent
