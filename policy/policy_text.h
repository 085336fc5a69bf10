// SPDX-License-Identifier: Apache-2.0
// The way back from policies to a file.
#pragma once

#include <string>

#include "policy/policy.h"

namespace ferry {

/// Policies as a file of their own, version v2, as read_policies() takes it. `release` is the first one's: a
/// file has one for all.
std::string policy_text(const PolicyFile& file);

}  // namespace ferry
