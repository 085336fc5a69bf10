// SPDX-License-Identifier: Apache-2.0
// Inside this room: the policy that a name stands for, among all that the cluster's configurations hold.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "common/config_tree.h"
#include "common/result.h"
#include "policy/policy.h"

namespace ferry {

struct FoundPolicy {
  Policy policy;
  std::string config;       ///< the text that holds it
  bool of_profile = false;  ///< PolicyFile::of_profiles
};

/// The first that holds the name; others may, where they say the same under it. Configurations that cannot be
/// read, and were not needed, and names that no label can say, are added to `warnings`. Errc::invalid_config:
/// none holds the name, and then why one cannot be read, or what was probably meant; or two say different
/// things under it.
/// `unreadable`: those that could not even be had.
Result<FoundPolicy> find_policy(std::span<const ConfigText> configs, std::span<const Error> unreadable,
                                const std::string& name, std::vector<std::string>& warnings);

}  // namespace ferry
