// SPDX-License-Identifier: Apache-2.0
#include "agent/config_lookup.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "agent/known_policies.h"
#include "agent/node_wish.h"
#include "common/suggest.h"
#include "vgpu-dm/label_name.h"

namespace ferry {
namespace {

// A site's profile file often began as a copy of NVIDIA's, so equal content is no conflict. A profile has no
// list of services to stop and gets the agent's. A policy has its own list, so it always differs from a
// profile.
bool says_another(const FoundPolicy& first, const FoundPolicy& other) {
  return first.of_profile != other.of_profile || !same_policy(first.policy, other.policy);
}

// NVIDIA's own file has hundreds of names.
std::string listed(std::span<const std::string> names) {
  constexpr std::size_t kMost = 12;
  const auto first = names.first(std::min(names.size(), kMost));
  return fmt::format(
      "{}{}", fmt::join(first, ", "),
      first.size() == names.size() ? "" : fmt::format(" and {} more", names.size() - first.size()));
}

}  // namespace

Result<FoundPolicy> find_policy(std::span<const ConfigText> configs, std::span<const Error> unreadable,
                                const std::string& name, std::vector<std::string>& warnings) {
  std::vector<FoundPolicy> found;
  std::vector<std::string> names;
  std::vector<Error> faults(unreadable.begin(), unreadable.end());
  std::vector<std::string> unreachable;
  for (const ConfigText& config : configs) {
    const auto known = known_policies(config);
    const Result<PolicyFile>& file = *known;
    if (!file) {
      faults.push_back(file.error());
      continue;
    }
    for (const Policy& policy : file->policies) {
      if (std::ranges::find(names, policy.name) == names.end()) names.push_back(policy.name);
      if (!can_be_label(policy.name)) unreachable.push_back(label_warning(policy.place, policy.name));
      if (policy.name == name)
        found.push_back({.policy = policy, .config = config.text, .of_profile = file->of_profiles});
    }
  }
  const auto other =
      std::ranges::find_if(found, [&](const FoundPolicy& one) { return says_another(found.front(), one); });
  if (!found.empty() && other == found.end()) {
    warnings.insert(warnings.end(), unreachable.begin(), unreachable.end());
    for (const Error& fault : faults) warnings.push_back("passed over: " + fault.message);
    return std::move(found.front());
  }
  if (other != found.end()) {
    return fail(Errc::invalid_config,
                fmt::format("'{}' stands at {} and, saying something else, at {}", name,
                            found.front().policy.place, other->policy.place),
                "give one of them another name");
  }
  if (!faults.empty()) {
    Error fault = std::move(faults.front());
    return fail(std::move(fault).during(
        fmt::format("'{}' stands in no configuration that can be read, and this one cannot", name)));
  }
  if (names.empty()) {
    return fail(Errc::invalid_config, fmt::format("'{}' is asked for, and no configuration holds any", name),
                "a policy (docs/policy.md) or a vGPU profile file, in a ConfigMap that the agent is given");
  }
  return fail(Errc::invalid_config,
              fmt::format("no configuration holds '{}'{}", name, did_you_mean(name, names)),
              "there are: " + listed(names));
}

}  // namespace ferry
