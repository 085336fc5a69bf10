// SPDX-License-Identifier: Apache-2.0
// Inside this room: the policies of a text, read once. An agent looks at the same few texts over and over,
// and to read their YAML was the dearest part of a look.
#pragma once

#include <memory>

#include "common/config_tree.h"
#include "common/result.h"
#include "policy/policy.h"

namespace ferry {

/// What read_policies says of it. What a thread has not asked for in its last hundreds of questions, an edition
/// that is gone say, is forgotten.
std::shared_ptr<const Result<PolicyFile>> known_policies(const ConfigText& source);

}  // namespace ferry
