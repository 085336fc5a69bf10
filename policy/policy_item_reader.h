// SPDX-License-Identifier: Apache-2.0
// Reads an item of a policy file.
#pragma once

#include "common/result.h"
#include "policy/policy.h"
#include "vgpu-dm/profile/item_reader.h"

namespace ferry::policy {

/// Errc::invalid_config, "file:line: key: fault".
Result<PolicyItem> read_policy_item(const vgpu::ItemReader& reader, const vgpu::NamedItems::Item& item);

}  // namespace ferry::policy
