// SPDX-License-Identifier: Apache-2.0
#include "policy/policy_export.h"

#include <algorithm>

#include "policy/policy_text.h"
#include "policy/policy_verdict.h"
#include "policy/policy_yaml.h"
#include "vgpu-dm/export.h"

namespace ferry {
namespace {

bool same(const PolicyItem& item, Mode mode, const std::vector<VgpuCount>& vgpus) {
  return item.mode == mode && std::ranges::equal(item.gpus.vgpus, vgpus, [](const auto& a, const auto& b) {
           return a.type == b.type && a.count == b.count;
         });
}

/// That the file says what the host is: by the very code that reads it and holds it against the host.
Result<> check(const Policy& policy, const Inventory& inventory, const VgpuInventory& vgpus) {
  PolicyFile file;
  file.policies.push_back(policy);
  auto read = read_policies({.file = "the policy of this host", .text = policy_text(file)});
  if (!read) return fail(Errc::unsupported, std::move(read).error().message);
  for (const NodeVerdict& verdict : judge_policy(read->policies.front(), inventory, vgpus)) {
    if (!verdict.agrees()) return fail(Errc::unsupported, verdict.difference);
  }
  return {};
}

}  // namespace

Result<Policy> export_policy(const Inventory& inventory, const VgpuInventory& vgpus,
                             const std::string& name) {
  auto profile = export_profile(vgpus, name);
  if (!profile) return fail(std::move(profile).error());
  Policy policy{.name = name, .items = {}, .place = {}};
  for (const VgpuGpu& gpu : vgpus.gpus) {
    const Mode mode = mode_of(gpu);
    const ProfileItem* carried = profile->item_for(gpu);
    const auto counts = mode == Mode::vgpu && carried != nullptr ? carried->vgpus : std::vector<VgpuCount>{};
    auto found =
        std::ranges::find_if(policy.items, [&](const PolicyItem& item) { return same(item, mode, counts); });
    if (found == policy.items.end()) {
      PolicyItem item{.gpus = {}, .mode = mode};
      item.gpus.vgpus = counts;
      found = policy.items.insert(policy.items.end(), std::move(item));
    }
    found->gpus.indices.push_back(gpu.index);
  }
  if (policy.items.empty()) policy.items.emplace_back();  // a policy has an item; this one is for no GPU
  if (auto checked = check(policy, inventory, vgpus); !checked) return fail(std::move(checked).error());
  return policy;
}

}  // namespace ferry
