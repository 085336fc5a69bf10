// SPDX-License-Identifier: Apache-2.0
#include "policy/policy_export.h"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

#include "policy/policy_text.h"
#include "policy/policy_verdict.h"
#include "policy/policy_yaml.h"
#include "vgpu-dm/types/carried_extras.h"
#include "vgpu-dm/types/export.h"

namespace ferry::policy {
namespace {

bool same(const PolicyItem& a, const PolicyItem& b) {
  const auto same_count = [](const vgpu::VgpuCount& one, const vgpu::VgpuCount& other) {
    return one.type == other.type && one.count == other.count && one.params == other.params;
  };
  return a.mode == b.mode && a.gpus.mixed_sizes == b.gpus.mixed_sizes &&
         std::ranges::equal(a.gpus.vgpus, b.gpus.vgpus, same_count);
}

/// True if mixed sizes are on for a GPU whose vGPUs have one size. Without an answer a note is added.
bool has_mixed_sizes(const mdev::VgpuGpu& gpu, const ManagedGpus& managed, std::vector<std::string>& notes) {
  const auto found = managed.find(gpu.address());
  if (found == managed.end()) return false;
  if (found->second) return found->second->mixed_sizes == mdev::GpuSwitch::on;
  notes.push_back(fmt::format("{}: whether mixed sizes are on is not known, and left out: {}", gpu.label(),
                              found->second.error().message));
  return false;
}

PolicyItem item_of(const mdev::VgpuGpu& gpu, const vgpu::ProfileItem* carried, const ManagedGpus& managed,
                   std::vector<std::string>& notes) {
  PolicyItem item{.gpus = {}, .mode = mode_of(gpu)};
  if (item.mode != Mode::vgpu || carried == nullptr) return item;
  item.gpus.vgpus = carried->vgpus;
  vgpu::CarriedExtras extras = vgpu::extras_of(gpu);
  for (vgpu::VgpuCount& entry : item.gpus.vgpus) {
    const auto params = extras.params.find(entry.type.text());
    if (params != extras.params.end()) entry.params = std::move(params->second);
  }
  std::ranges::move(extras.unsaid, std::back_inserter(notes));
  item.gpus.mixed_sizes = extras.several_sizes || has_mixed_sizes(gpu, managed, notes);
  return item;
}

/// Verifies that the file describes the host, with the code that reads policies and judges hosts.
Result<> check(const Policy& policy, const vfio::Inventory& inventory, const mdev::VgpuInventory& vgpus) {
  PolicyFile file;
  file.policies.push_back(policy);
  auto read = read_policies({.file = "the policy of this host", .text = policy_text(file)});
  if (!read) return fail(Errc::unsupported, read.error().message, read.error().hint);
  for (const NodeVerdict& verdict : judge_policy(read->policies.front(), inventory, vgpus)) {
    if (!verdict.agrees()) return fail(Errc::unsupported, verdict.difference);
  }
  return {};
}

}  // namespace

bool asks_library_to_export(const mdev::VgpuGpu& gpu) {
  if (!gpu.on_virtual_functions() || mode_of(gpu) != Mode::vgpu || vgpu::extras_of(gpu).several_sizes)
    return false;
  return std::ranges::none_of(gpu.devices, [](const mdev::VgpuDevice& device) {
    const auto name = vgpu::VgpuTypeName::parse(device.short_name);
    return name && name->is_mig_backed();
  });
}

Result<ExportedPolicy> export_policy(const vfio::Inventory& inventory, const mdev::VgpuInventory& vgpus,
                                     const std::string& name, const ManagedGpus& managed) {
  auto profile = vgpu::export_profile(vgpus, name);
  if (!profile) return fail(std::move(profile).error());
  ExportedPolicy out{.policy = {.name = name, .items = {}, .place = {}}, .notes = {}};
  auto& items = out.policy.items;
  for (const mdev::VgpuGpu& gpu : vgpus.gpus) {
    PolicyItem item = item_of(gpu, profile->item_for(gpu), managed, out.notes);
    auto found = std::ranges::find_if(items, [&](const PolicyItem& other) { return same(other, item); });
    if (found == items.end()) found = items.insert(items.end(), std::move(item));
    found->gpus.indices.push_back(gpu.index);
  }
  if (items.empty()) items.emplace_back();  // a policy has an item; this one matches no GPU
  if (auto checked = check(out.policy, inventory, vgpus); !checked) return fail(std::move(checked).error());
  return out;
}

}  // namespace ferry::policy
