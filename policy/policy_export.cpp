// SPDX-License-Identifier: Apache-2.0
#include "policy/policy_export.h"

#include <algorithm>
#include <iterator>
#include <span>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/config/config_tree.h"
#include "mdev/framework.h"
#include "policy/policy_comparison.h"
#include "policy/policy_yaml.h"
#include "vfio/bind/driver_modules.h"
#include "vgpu-dm/plan/export.h"

namespace ferry::policy {
namespace {

bool same(const PolicyItem& a, const PolicyItem& b) {
  const auto same_count = [](const vgpu::VgpuCount& one, const vgpu::VgpuCount& other) {
    return one.type == other.type && one.count == other.count && one.params == other.params;
  };
  return a.mode == b.mode && a.allocation == b.allocation && a.allow == b.allow &&
         a.gpus.mixed_sizes == b.gpus.mixed_sizes &&
         std::ranges::equal(a.gpus.vgpus, b.gpus.vgpus, same_count);
}

PolicyItem item_of(const mdev::VgpuGpu& gpu, const vgpu::ProfileItem* carried, const ManagedGpus& managed,
                   std::vector<std::string>& notes) {
  PolicyItem item{.gpus = {}, .mode = mode_of(gpu)};
  if (item.mode != Mode::vgpu || carried == nullptr) return item;
  item.gpus.vgpus = carried->vgpus;
  vgpu::ExtraSettings extras = vgpu::extras_of(gpu);
  for (vgpu::VgpuCount& entry : item.gpus.vgpus) {
    const auto params = extras.params.find(entry.type.text());
    if (params != extras.params.end()) entry.params = std::move(params->second);
  }
  std::ranges::move(extras.unsaid, std::back_inserter(notes));
  item.gpus.mixed_sizes = extras.several_sizes;
  const auto found = managed.find(gpu.address());
  if (extras.several_sizes || found == managed.end()) return item;

  // Mixed sizes may be on for a GPU whose vGPUs have one size.
  if (found->second) {
    item.gpus.mixed_sizes = found->second->mixed_sizes == mdev::GpuSwitch::on;
  } else {
    notes.push_back(fmt::format("{}: whether mixed sizes are on is not known, and left out: {}", gpu.label(),
                                found->second.error().message));
  }
  return item;
}

/// The item of a GPU for claims, whose vGPUs are theirs.
PolicyItem item_for_claims(const mdev::VgpuGpu& gpu, const api::ClaimableGpu& claimable,
                           std::vector<std::string>& notes) {
  // A GPU with GPU instances is for no claim whole, whatever the policy allows.
  const bool has_instances = std::ranges::any_of(
      claimable.types, [](const api::VgpuType& type) { return type.fills.starts_with("gi-"); });
  const bool limited =
      (!claimable.whole && !has_instances) || !std::ranges::all_of(claimable.types, &api::VgpuType::allowed);
  if (limited)
    notes.push_back(
        fmt::format("{}: claims cannot have all of its devices: `allow` is left out", gpu.label()));
  return {.gpus = {}, .allocation = Allocation::dra, .allow = {.mixed_sizes = claimable.mixed_sizes}};
}

/// The reason why no policy describes the GPU as it is; empty: one does.
std::string why_left_out(std::span<const vfio::Finding> findings, const mdev::VgpuGpu& gpu) {
  if (gpu.function.problem) return gpu.function.problem->message;
  if (const vfio::Finding* illness = vfio::illness_of(gpu.function, findings)) return illness->text;
  if (mode_of(gpu) == Mode::host)
    if (const auto none = vfio::no_host_driver(gpu.function)) return none->message;
  if (mode_of(gpu) != Mode::passthrough) {
    const Error* problem = gpu.problem();
    return problem != nullptr ? problem->message : vgpu::why_no_item(gpu);
  }
  const vfio::Finding* obstacle = vfio::obstacle_to(findings, vfio::Blocks::ready);
  if (obstacle == nullptr) return {};
  return obstacle->advice.empty() ? obstacle->text : fmt::format("{} ({})", obstacle->text, obstacle->advice);
}

}  // namespace

bool asks_library_to_export(const mdev::VgpuGpu& gpu) {
  if (!gpu.framework->by_nvidias_driver() || !gpu.on_virtual_functions() || mode_of(gpu) != Mode::vgpu ||
      vgpu::extras_of(gpu).several_sizes)
    return false;
  return std::ranges::none_of(gpu.devices,
                              [](const mdev::VgpuDevice& device) { return vgpu::is_mig_backed(device); });
}

Result<ExportedPolicy> export_policy(const mdev::VgpuInventory& vgpus, const vfio::GpuFindings& findings,
                                     const std::string& name, const ManagedGpus& managed,
                                     const std::vector<api::ClaimableGpu>& claimable,
                                     const std::set<vfio::PciAddress>& named) {
  // export_profile() fails for a GPU whose vGPUs cannot be read.
  mdev::VgpuInventory readable = vgpus;
  std::erase_if(readable.gpus, [](const mdev::VgpuGpu& gpu) { return gpu.problem() != nullptr; });
  auto profile = vgpu::export_profile(readable, name);
  if (!profile) return fail(std::move(profile).error());
  ExportedPolicy out{.policy = {.name = name, .items = {}, .place = {}}, .notes = {}};
  auto& items = out.policy.items;
  for (const mdev::VgpuGpu& gpu : vgpus.gpus) {
    const auto claimed = std::ranges::find(claimable, gpu.address(), &api::ClaimableGpu::address);
    const api::ClaimableGpu* of_claims = claimed != claimable.end() && claimed->for_dra ? &*claimed : nullptr;
    const bool is_whole = named.contains(gpu.address()) && vfio::on_vfio_driver(gpu.function);
    if (gpu.by_name && gpu.devices.empty() && !is_whole && of_claims == nullptr) continue;  // as the profile
    if (const std::string why = why_left_out(vfio::findings_about(findings, gpu.address()), gpu);
        of_claims == nullptr && !why.empty()) {
      out.notes.push_back(fmt::format("{}: left out: {}", gpu.label(), why));
      continue;
    }
    PolicyItem item = of_claims != nullptr ? item_for_claims(gpu, *of_claims, out.notes)
                                           : item_of(gpu, profile->item_for(gpu), managed, out.notes);
    if (gpu.by_name) {
      item.gpus.all_devices = true;
      item.selection.addresses = {gpu.address()};
      items.push_back(std::move(item));
      continue;
    }
    auto found = std::ranges::find_if(items, [&](const PolicyItem& other) { return same(other, item); });
    if (found == items.end()) found = items.insert(items.end(), std::move(item));
    found->gpus.indices.push_back(gpu.index);
  }
  if (items.empty()) items.emplace_back();  // a policy has an item; this one matches no GPU

  // The code that reads policies and judges hosts verifies that the file describes the host.
  PolicyFile file;
  file.policies.push_back(out.policy);
  const auto read = read_policies({.file = "the policy of this host", .text = policy_text(file)});
  if (!read) return fail(Errc::unsupported, read.error().message, read.error().hint);
  for (const ModeComparison& comparison : judge_policy(read->policies.front(), vgpus, findings))
    if (!comparison.agrees()) return fail(Errc::unsupported, comparison.difference);
  return out;
}

namespace {

// A key on which all YAML readers agree: quoted unless it has only safe characters.
std::string key_text(const std::string& key) {
  constexpr std::string_view kSafe = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
  const bool plain = !key.empty() && key.front() != '-' && is_plain_string(key) &&
                     key.find_first_not_of(kSafe) == std::string::npos;
  if (plain) return key;
  std::string out = "\"";
  for (const char c : key) {
    if (static_cast<unsigned char>(c) < ' ' || c == '\x7f') {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    } else {
      if (c == '"' || c == '\\') out += '\\';
      out += c;
    }
  }
  return out + "\"";
}

template <typename Values, typename Shown>
std::string list_text(const Values& values, const Shown& shown) {
  std::vector<std::string> out;
  out.reserve(values.size());
  for (const auto& value : values) out.push_back(shown(value));
  return out.size() == 1 ? out.front() : fmt::format("[{}]", fmt::join(out, ", "));
}

std::string quoted(const std::string& text) {
  const std::string key = key_text(text);
  return key.starts_with('"') ? key : '"' + text + '"';
}

std::string item_text(const PolicyItem& item) {
  std::vector<std::string> lines;
  const vgpu::ProfileItem& gpus = item.gpus;
  const GpuSelection& by = item.selection;
  const bool chosen_otherwise = !gpus.filters.empty() || !by.empty();
  if (!gpus.all_devices) {
    lines.push_back(fmt::format("devices: [{}]", fmt::join(gpus.indices, ", ")));
  } else if (!chosen_otherwise) {
    lines.emplace_back("devices: all");
  }
  if (!gpus.filters.empty()) {
    lines.push_back("device-filter: " +
                    list_text(gpus.filters, [](const vgpu::DeviceFilter& f) { return quoted(f.text()); }));
  }
  if (!by.models.empty()) lines.push_back("model: " + list_text(by.models, quoted));
  if (!by.addresses.empty()) {
    lines.push_back("address: " +
                    list_text(by.addresses, [](const vfio::PciAddress& a) { return quoted(a.text()); }));
  }
  if (!by.numa_nodes.empty())
    lines.push_back("numa-node: " + list_text(by.numa_nodes, [](int node) { return std::to_string(node); }));
  if (!by.vendors.empty()) {
    lines.push_back("vendor: " + list_text(by.vendors, [](std::uint16_t vendor) {
                      return fmt::format("\"{:04x}\"", vendor);
                    }));
  }
  if (item.allocation == Allocation::dra) {
    lines.push_back(fmt::format("allocation: {}", text(item.allocation)));
    const AllowedDevices all{.mixed_sizes = item.allow.mixed_sizes};
    if (item.allow != all) {
      std::vector<std::string> allowed;
      if (item.allow.whole) allowed.emplace_back("whole");
      allowed.insert(allowed.end(), item.allow.types.begin(), item.allow.types.end());
      lines.push_back("allow: " + list_text(allowed, quoted));
    }
    if (item.allow.mixed_sizes) lines.emplace_back("mixed-sizes: true");
    return fmt::format("  - {}\n", fmt::join(lines, "\n    "));
  }
  lines.push_back(fmt::format("mode: {}", text(item.mode)));
  if (gpus.mixed_sizes) lines.emplace_back("mixed-sizes: true");
  if (item.mode == Mode::vgpu) {
    lines.emplace_back(gpus.vgpus.empty() ? "vgpu-devices: {}" : "vgpu-devices:");
    for (const vgpu::VgpuCount& entry : gpus.vgpus) {
      std::string more;
      if (entry.params) more += fmt::format(", vgpu-params: {}", quoted(entry.params->text()));
      if (!entry.placement.empty())
        more += fmt::format(", placement: [{}]", fmt::join(entry.placement, ", "));
      const std::string count =
          more.empty() ? std::to_string(entry.count) : fmt::format("{{count: {}{}}}", entry.count, more);
      lines.push_back(fmt::format("  {}: {}", key_text(entry.type.text()), count));
    }
  }
  return fmt::format("  - {}\n", fmt::join(lines, "\n    "));
}

}  // namespace

std::string policy_text(const PolicyFile& file) {
  std::string out = "version: v2\n";
  if (file.policies.empty()) return out;
  const Policy& any = file.policies.front();  // keys beside the policies are the same in all

  // The units beside the default, and "none" if the default is missing.
  std::vector<std::string> release;
  const std::set<std::string> unasked = vfio::default_release();
  for (const std::string& name : unasked)
    if (!any.release.contains(name)) release.emplace_back("none");
  for (const std::string& name : any.release)
    if (!unasked.contains(name)) release.push_back(key_text(name));
  if (!release.empty()) out += fmt::format("release: [{}]\n", fmt::join(release, ", "));

  if (any.foreign) out += fmt::format("foreign: {}\n", word_for(kForeignWords, *any.foreign));
  if (any.registers != ReadRegisters::automatic)
    out += fmt::format("registers: {}\n", word_for(kReadRegisters, any.registers));
  if (any.sanitize != kSanitizeByDefault)
    out += fmt::format("sanitize: {}\n", word_for(kSanitize, any.sanitize));
  std::string selectors;
  for (const Policy& policy : file.policies) {
    if (policy.node_selector.empty()) continue;
    selectors += fmt::format("  {}:\n", key_text(policy.name));
    for (const auto& [key, value] : policy.node_selector)
      selectors += fmt::format("    {}: {}\n", key_text(key), key_text(value));
  }
  if (!selectors.empty()) out += "nodeSelector:\n" + selectors;
  out += "policies:\n";
  for (const Policy& policy : file.policies) {
    out += fmt::format("  {}:\n", key_text(policy.name));
    for (const PolicyItem& item : policy.items) out += item_text(item);
  }
  return out;
}

}  // namespace ferry::policy
