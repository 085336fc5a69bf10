// SPDX-License-Identifier: Apache-2.0
// Reads an item of a policy file.
#pragma once

#include "common/result.h"
#include "policy/policy.h"
#include "vgpu-dm/profile/item_reader.h"

namespace ferry {

/// Errc::invalid_config, "file:line: key: fault".
Result<PolicyItem> read_policy_item(const ItemReader& reader, const NamedItems::Item& item);

}  // namespace ferry
