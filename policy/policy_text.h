// SPDX-License-Identifier: Apache-2.0
// Writes policies as a file.
#pragma once

#include <string>

#include "policy/policy.h"

namespace ferry::policy {

/// The policies as a complete v2 file that read_policies() accepts. `release` and `foreign` are those of the
/// first policy: a file has one for all.
std::string policy_text(const PolicyFile& file);

}  // namespace ferry::policy
