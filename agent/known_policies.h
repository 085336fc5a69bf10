// SPDX-License-Identifier: Apache-2.0
// Inside this room: the policies of a text, read once. An agent looks at the same few texts over and over,
// and to read their YAML was the dearest part of a look.
#pragma once

#include <memory>

#include "common/config_tree.h"
#include "common/result.h"
#include "policy/policy.h"

namespace ferry {

/// A look of this thread begins: what was not asked for since the one before, an edition that is gone say, is
/// forgotten.
void begin_look_at_policies();

/// What read_policies says of it.
std::shared_ptr<const Result<PolicyFile>> known_policies(const ConfigText& source);

}  // namespace ferry
