// SPDX-License-Identifier: Apache-2.0
// Inside this room: the policies of a text, read once. An agent looks at the same few texts over and over,
// and to read their YAML was the dearest part of a look.
#pragma once

#include <memory>

#include "common/config_tree.h"
#include "common/result.h"
#include "policy/policy.h"

namespace ferry {

/// What read_policies says of it. Of each thread the texts asked for last are remembered, so many that an
/// agent with more configurations only reads some anew.
std::shared_ptr<const Result<PolicyFile>> known_policies(const ConfigText& source);

}  // namespace ferry
