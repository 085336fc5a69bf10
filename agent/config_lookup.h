// SPDX-License-Identifier: Apache-2.0
// Inside this room: finds the policy of a name in all configurations of the cluster.
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
  std::string config;       ///< the text that contains it
  bool of_profile = false;  ///< PolicyFile::of_profiles
};

/// The first policy with the name; all others with it must have the same content. `unreadable`: errors of
/// configurations that could not be fetched. Unneeded unreadable configurations, and names that no label can
/// have, are added to `warnings`. Errc::invalid_config: no configuration has the name, and the message says
/// why one cannot be read, or which name was probably meant; or two policies differ.
Result<FoundPolicy> find_policy(std::span<const ConfigText> configs, std::span<const Error> unreadable,
                                const std::string& name, std::vector<std::string>& warnings);

}  // namespace ferry
