// SPDX-License-Identifier: Apache-2.0
// What a node is, as a policy: the way back from a host to a file.
#pragma once

#include <string>

#include "common/result.h"
#include "policy/policy.h"
#include "vfio/inventory.h"

namespace ferry {

/// The policy that a node agrees with as it is: judge_policy() finds no difference, and applying it writes
/// nothing. One item per set of GPUs that are the same, by their numbers; every GPU is in one. What may be
/// released no host shows: the default.
///
/// Errors: those of export_profile(); or Errc::unsupported: a card is half on vfio, which no policy can say.
Result<Policy> export_policy(const Inventory& inventory, const VgpuInventory& vgpus, const std::string& name);

}  // namespace ferry
