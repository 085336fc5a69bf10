// SPDX-License-Identifier: Apache-2.0
#include "host/claims/claimable_gpus.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <string_view>

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "api/files.h"
#include "common/text/text.h"
#include "hostfs/stuck_writes.h"
#include "mdev/framework.h"
#include "policy/accelerators.h"
#include "vfio/bind/rebind_plan.h"
#include "vfio/pci/pci_resources.h"
#include "vgpu-dm/types/type_capacity.h"
#include "vgpu-dm/types/type_names.h"
#include "vgpu-dm/types/type_table.h"

namespace ferry::host {
namespace {

/// True if the driver may list vGPU types and lists none yet: nvidia-vgpud tells it the types some time after
/// the driver has the GPU. A GPU that lacks its virtual functions gets no type before them.
bool may_list_types_later(const mdev::VgpuGpu& gpu) {
  const bool may_list = gpu.host_driver ? !gpu.may_get_virtual_functions() : !gpu.functions.empty();
  return may_list && !gpu.function.problem && gpu.function.driver && !vfio::on_vfio_driver(gpu.function) &&
         !gpu.framework->binds_functions() && gpu.devices.empty() && gpu.problem() == nullptr &&
         vgpu::types_of(gpu).empty();
}

/// True if the GPU lists now the types of an empty GPU.
bool lists_all_types(const mdev::VgpuGpu& gpu, bool lacks_some) {
  return !gpu.function.problem && gpu.function.driver && !lacks_some && gpu.devices.empty() &&
         !vfio::on_vfio_driver(gpu.function) &&
         std::ranges::none_of(gpu.parents,
                              [](const mdev::VgpuParent& parent) { return parent.problem.has_value(); });
}

/// The time-sliced types by the scan. A GPU with vGPUs also has types in VgpuGpu::unlisted, of which some
/// have no ID.
std::vector<mdev::VgpuType> scanned_types(const mdev::VgpuGpu& gpu, bool is_empty) {
  std::vector<mdev::VgpuType> out = vgpu::types_of(gpu);
  if (is_empty)
    std::erase_if(out, [](const mdev::VgpuType& type) { return type.available == 0; });
  else
    out.insert(out.end(), gpu.unlisted.begin(), gpu.unlisted.end());
  std::erase_if(out, [](const mdev::VgpuType& type) { return type.id.empty() || vgpu::is_mig_backed(type); });
  return out;
}

/// The type's names for AllowedDevices::allows().
mdev::VgpuType named(const api::VgpuType& type) {
  mdev::VgpuType out;
  out.name = type.name;
  out.short_name = type.short_name;
  return out;
}

/// The number of a type in the library: 1153 of "nvidia-1153".
std::optional<std::uint32_t> number_of(std::string_view id) {
  return whole_number<std::uint32_t>(id.substr(id.find_last_of('-') + 1));
}

/// The types that fill a GPU instance, with the number of these instances. The driver chooses the instance of
/// a vGPU. It could put one of several that share an instance where a larger type of a claim was to go, so
/// types that share an instance are left out.
std::vector<api::VgpuType> types_of_instances(const mdev::VgpuGpu& gpu, const mdev::ManagedGpu& managed) {
  std::vector<api::VgpuType> out;
  for (const mdev::VgpuType& type : vgpu::types_of(gpu)) {
    const auto known = std::ranges::find_if(managed.types, [&](const mdev::ManagedType& one) {
      return number_of(type.id) == one.id && one.instance_profile && one.most_per_instance.value_or(1) == 1;
    });
    if (known == managed.types.end()) continue;
    const auto profile =
        std::ranges::find(managed.profiles, *known->instance_profile, &mdev::GpuInstanceProfile::id);
    const auto instances = std::ranges::count_if(managed.instances, [&](const mdev::GpuInstance& instance) {
      return instance.profile == *known->instance_profile && !instance.divided;
    });
    if (profile == managed.profiles.end() || instances == 0) continue;
    out.push_back({.id = type.id,
                   .name = type.name,
                   .short_name = type.short_name,
                   .framebuffer_mib = type.framebuffer_mib.value_or(0),
                   .most_per_gpu = static_cast<std::uint32_t>(instances),
                   .fills = "gi-" + profile->name});
  }
  return out;
}

/// The reason why no vGPU can be made on GPU instances; empty: one can be.
std::string why_no_instances(const Result<mdev::ManagedGpu>& said, const std::vector<api::VgpuType>& types) {
  if (!said)
    return "its vGPUs need its GPU instances (MIG), and NVML does not report them: " + said.error().message;
  return types.empty() ? "no vGPU type fills one of its GPU instances (MIG)" : std::string();
}

/// The type of virtual functions that VMs get whole, as many as the GPU has. No driver tells how much memory
/// one has. Half of its largest BAR is an estimate: a BAR has the next power of two above the memory.
std::vector<api::VgpuType> types_of_functions(const ClaimableFacts& facts, const mdev::VgpuGpu& gpu) {
  std::vector<api::VgpuType> out;
  for (const mdev::VgpuType& type : vgpu::types_of(gpu)) {
    const auto bar = facts.bars.find(gpu.parents.front().address);
    out.push_back({.id = type.id,
                   .name = type.name,
                   .short_name = type.short_name,
                   .framebuffer_mib = bar == facts.bars.end() ? 0 : bar->second / 2,
                   .most_per_gpu = static_cast<std::uint32_t>(gpu.parents.size()),
                   .fills = "vf"});
  }
  return out;
}

/// The GPU of the last round; nullptr: there is none, or another GPU had the address.
const api::ClaimableGpu* earlier(const ClaimableFacts& facts, const mdev::VgpuGpu& gpu) {
  const auto found = std::ranges::find(facts.before, gpu.address(), &api::ClaimableGpu::address);
  if (found == facts.before.end()) return nullptr;
  const bool unreadable = gpu.function.problem.has_value();
  const bool same = found->vendor == gpu.function.vendor && found->device == gpu.function.device;
  return same || unreadable ? &*found : nullptr;
}

/// Adds the placements of a type, by its ID: from the library's answer, else from the last round.
void add_placements(const mdev::ManagedGpu* managed, const api::ClaimableGpu* before, api::VgpuType& type) {
  if (managed != nullptr) {
    const auto found = std::ranges::find_if(managed->types, [&](const mdev::ManagedType& one) {
      return number_of(type.id) == one.id && !one.instance_profile;
    });
    if (found != managed->types.end() && !found->placements.empty()) {
      type.size = found->size;
      type.placements = found->placements;
      return;
    }
  }
  if (before == nullptr) return;
  const auto known = std::ranges::find(before->types, type.id, &api::VgpuType::id);
  if (known == before->types.end()) return;
  type.size = known->size;
  type.placements = known->placements;
}

/// `lacks_some`: the GPU does not list all of its types now.
void add_types(const ClaimableFacts& facts, const mdev::VgpuGpu& gpu, bool lacks_some,
               api::ClaimableGpu& out) {
  const api::ClaimableGpu* before = earlier(facts, gpu);
  const bool is_waiting = may_list_types_later(gpu);
  const bool is_empty = !is_waiting && lists_all_types(gpu, lacks_some);
  const auto allow = facts.for_dra.find(gpu.address());
  out.mixed_sizes = allow != facts.for_dra.end() && allow->second.mixed_sizes;
  // A policy may change the value of a GPU without vGPUs alone.
  if (!is_empty && before != nullptr) out.mixed_sizes = before->mixed_sizes;
  out.framework = api::VgpuFramework::none;
  if (gpu.framework->makes_vgpus())
    out.framework =
        gpu.framework->has_mediated_devices() ? api::VgpuFramework::mdev : api::VgpuFramework::vendor_vfio;

  const auto said = facts.managed.find(gpu.address());
  const bool is_answered = said != facts.managed.end() && said->second;
  const bool has_no_instances = is_answered && said->second->instances.empty();
  if (is_answered && !has_no_instances) out.whole = false;
  const auto is_of_instance = [](const api::VgpuType& type) { return type.fills.starts_with("gi-"); };
  if (!is_empty && before != nullptr) {
    out.types = before->types;
    if (has_no_instances) std::erase_if(out.types, is_of_instance);
    if (out.framework == api::VgpuFramework::none) out.framework = before->framework;
  }
  if (out.framework == api::VgpuFramework::none) {
    out.types.clear();
    return;
  }
  if (out.vgpu_reason.empty() && is_waiting) out.vgpu_reason = "its driver lists no vGPU types now";
  if (out.vgpu_reason.empty() && !gpu.function.problem && !gpu.function.driver)
    out.vgpu_reason = "no driver is bound to it";
  const bool in_mig_mode = is_empty && vgpu::has_instances(gpu);
  if (in_mig_mode) out.whole = false;
  const bool by_instances = in_mig_mode && !out.mixed_sizes;
  if (by_instances) {
    if (is_answered)
      out.types = types_of_instances(gpu, *said->second);
    else if (before != nullptr)
      std::ranges::copy_if(before->types, std::back_inserter(out.types), is_of_instance);
    if (said != facts.managed.end() && out.vgpu_reason.empty())
      out.vgpu_reason = why_no_instances(said->second, out.types);
  }
  const bool by_functions = is_empty && gpu.framework->binds_functions();
  if (by_functions) out.types = types_of_functions(facts, gpu);
  // A further type would change the counters under claims that have vGPUs, and the driver may not have it.
  const bool is_settled = is_waiting || by_instances || by_functions || (!is_empty && !out.types.empty());
  for (const mdev::VgpuType& type : scanned_types(gpu, is_empty)) {
    if (is_settled || std::ranges::find(out.types, type.id, &api::VgpuType::id) != out.types.end()) continue;
    out.types.push_back({.id = type.id,
                         .name = type.name,
                         .short_name = type.short_name,
                         .framebuffer_mib = type.framebuffer_mib.value_or(0),
                         .most_per_gpu = type.max_instances});
  }
  for (api::VgpuType& type : out.types) {
    type.allowed = allow == facts.for_dra.end() || allow->second.allows(named(type));
    if (out.mixed_sizes) add_placements(is_answered ? &*said->second : nullptr, before, type);
  }
}

/// The reason why a GPU for mixed sizes has no vGPUs; empty: there is none, or it may have some.
std::string why_no_placements(const ClaimableFacts& facts, const mdev::VgpuGpu& gpu,
                              const api::ClaimableGpu& claimable) {
  const auto has_placements = [](const api::VgpuType& type) { return !type.placements.empty(); };
  if (!claimable.mixed_sizes || std::ranges::any_of(claimable.types, has_placements)) return {};
  if (const std::string_view why = gpu.framework->why_no_placement(); !why.empty()) return std::string(why);
  const auto said = facts.managed.find(gpu.address());
  return said == facts.managed.end() ? std::string() : why_no_mixed_sizes(said->second);
}

/// The reason for GpuHealth::unhealthy whatever a claim asks for; empty: there is none.
std::string illness_of(const ClaimableFacts& facts, const mdev::VgpuGpu& gpu) {
  const auto findings = vfio::findings_about(facts.node.findings, gpu.address());
  if (const vfio::Finding* illness = vfio::illness_of(gpu.function, findings)) return illness->text;
  const bool unread =
      !gpu.parents.empty() && std::ranges::all_of(gpu.parents, [](const mdev::VgpuParent& parent) {
        return parent.problem.has_value();
      });
  return unread ? "its vGPU types cannot be read: " + gpu.parents.front().problem->message : std::string();
}

/// The memory that the model's name tells, or the table of types. 0: neither has it.
std::uint32_t memory_by_tables(const vfio::PciFunction& function) {
  const auto known = policy::gpu_model(function.ids(), subsystem_of(function)).memory_mib;
  return known ? *known : vgpu::BoardTypes(function).memory_mib();
}

std::uint32_t largest_bar_mib(const HostFs& host, const vfio::PciAddress& gpu) {
  const auto ranges = host.read_file(vfio::sysfs_path(gpu) / "resource");
  std::uint64_t largest = 0;
  if (ranges)
    for (const vfio::Bar& bar : vfio::parse_pci_resources(*ranges).bars)
      if (bar.is_memory()) largest = std::max(largest, bar.size >> 20U);
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(largest, std::numeric_limits<int>::max()));
}

api::ClaimableGpu claimable_gpu(const ClaimableFacts& facts, const mdev::VgpuGpu& gpu) {
  const vfio::PciFunction& function = gpu.function;
  const auto allow = facts.for_dra.find(gpu.address());
  api::ClaimableGpu out{.address = gpu.address(),
                        .iommu_group = function.iommu_group,
                        .vendor = function.vendor,
                        .device = function.device,
                        .product = facts.models ? facts.models(function) : std::string(),
                        .memory_mib = memory_by_tables(function),
                        .numa_node = function.numa_node,
                        .for_dra = allow != facts.for_dra.end(),
                        .whole = allow == facts.for_dra.end() || allow->second.whole};
  if (const auto root = facts.roots.find(gpu.address()); root != facts.roots.end())
    out.pcie_root = root->second;
  if (const auto bar = facts.bars.find(gpu.address()); bar != facts.bars.end() && out.memory_mib == 0)
    out.bar_mib = bar->second;
  out.reason = illness_of(facts, gpu);
  if (const auto lacks = facts.without_functions.find(gpu.address()); lacks != facts.without_functions.end())
    out.vgpu_reason = lacks->second;
  const bool is_unnamed = facts.node.vgpus.find(gpu.address()) == nullptr;
  add_types(facts, gpu, is_unnamed || !out.reason.empty() || !out.vgpu_reason.empty(), out);
  if (std::ranges::any_of(out.types, [](const api::VgpuType& type) { return type.fills.starts_with("gi-"); }))
    out.whole = false;
  // An unreadable GPU keeps the facts on which its published devices rest.
  if (const api::ClaimableGpu* before = earlier(facts, gpu); function.problem && before != nullptr) {
    const api::ClaimableGpu now = out;
    out = *before;
    out.for_dra = now.for_dra;
    out.whole = now.whole;
    out.types = now.types;
    out.reason = now.reason;
    out.vgpu_reason = now.vgpu_reason;
    out.lost_claims = {};
  }
  if (out.reason.empty()) {
    const auto findings = vfio::findings_about(facts.node.findings, gpu.address());
    if (const vfio::Finding* obstacle = vfio::obstacle_to(findings, vfio::Blocks::prepare)) {
      const bool has_vgpus = std::ranges::any_of(out.types, &api::VgpuType::allowed);
      if ((out.whole && !has_vgpus) || out.types.empty() || !out.iommu_group) out.reason = obstacle->text;
      out.whole = false;
    }
    // KubeVirt takes a UUID, or a PCI address of exactly twelve characters.
    constexpr std::uint32_t kLastDomain = 0xFFFF;
    if (out.address.domain > kLastDomain) {
      out.whole = false;
      if (out.framework != api::VgpuFramework::mdev) out.types.clear();
      if (out.types.empty())
        out.reason = fmt::format(
            "the PCI domain of {} has more than four digits, and KubeVirt takes no such "
            "address",
            out.address.text());
    }
    // A selector by memory finds no capacity of 0, and fails where there is none.
    if (out.whole && out.memory_mib == 0 && out.bar_mib == 0 && out.types.empty()) {
      out.whole = false;
      out.reason = "the size of its memory is not known, and it has no memory BAR to judge by";
    }
    const std::string unplaced = why_no_placements(facts, gpu, out);
    if (!out.whole && out.reason.empty()) out.reason = unplaced;
  }
  if (const auto lost = facts.lost_claims.find(gpu.address()); lost != facts.lost_claims.end())
    out.lost_claims = lost->second;
  out.unplugged.clear();
  if (const auto unplugged = facts.unplugged.find(gpu.address()); unplugged != facts.unplugged.end())
    out.unplugged = unplugged->second;
  out.health = out.reason.empty() ? api::GpuHealth::ready : api::GpuHealth::unhealthy;
  return out;
}

}  // namespace

std::vector<api::ClaimableGpu> claimable_gpus(const ClaimableFacts& facts) {
  std::vector<api::ClaimableGpu> out;
  for (const vfio::PciAddress& address : facts.dra) {
    if (const mdev::VgpuGpu* gpu = facts.node.vgpus.find(address); gpu != nullptr) {
      out.push_back(claimable_gpu(facts, *gpu));
      continue;
    }
    const vfio::PciFunction* function = facts.node.inventory.find(address);
    // It is unplugged, or another device has its address.
    if (function == nullptr || !(function->problem || facts.rules.match_by_name(*function))) continue;
    // The scan has passed over a GPU with a claim: no policy names it any more, or its class was not read.
    mdev::VgpuGpu unnamed;
    unnamed.function = *function;
    out.push_back(claimable_gpu(facts, unnamed));
  }
  return out;
}

std::set<vfio::PciAddress> gpus_without_types(const ClaimableFacts& facts) {
  std::set<vfio::PciAddress> out;
  for (const vfio::PciAddress& address : facts.dra)
    if (const mdev::VgpuGpu* gpu = facts.node.vgpus.find(address);
        gpu != nullptr && may_list_types_later(*gpu))
      out.insert(address);
  return out;
}

std::set<vfio::PciAddress> gpus_without_placements(const ClaimableFacts& facts) {
  std::set<vfio::PciAddress> out;
  for (const api::ClaimableGpu& claimable : claimable_gpus(facts)) {
    const mdev::VgpuGpu* gpu = facts.node.vgpus.find(claimable.address);
    if (gpu == nullptr) continue;
    const bool can_be_asked = !gpu->function.problem && !vfio::on_vfio_driver(gpu->function) &&
                              !facts.stuck.contains(claimable.address) &&
                              gpu->framework->by_nvidias_driver() &&
                              gpu->framework->why_no_placement().empty();
    const auto lacking = std::ranges::count_if(
        claimable.types, [](const api::VgpuType& type) { return type.placements.empty(); });
    // While vGPUs exist, placements of one more type would change the counters under claims.
    const bool is_settled = !gpu->devices.empty() && lacking < std::ranges::ssize(claimable.types);
    if (claimable.mixed_sizes && can_be_asked && lacking > 0 && !is_settled) out.insert(claimable.address);
  }
  return out;
}

std::set<vfio::PciAddress> gpus_with_instances(const ClaimableFacts& facts) {
  std::set<vfio::PciAddress> out;
  for (const vfio::PciAddress& address : facts.dra) {
    const mdev::VgpuGpu* gpu = facts.node.vgpus.find(address);
    if (gpu == nullptr || !gpu->framework->by_nvidias_driver() || facts.stuck.contains(address) ||
        !lists_all_types(*gpu, false))
      continue;
    // A driver that lists no types now may have instances all the same.
    const bool hides_types = may_list_types_later(*gpu) || gpu->may_get_virtual_functions();
    if (vgpu::has_instances(*gpu) || (hides_types && vgpu::BoardTypes(gpu->function).has_mig_backed()))
      out.insert(address);
  }
  return out;
}

std::string why_no_mixed_sizes(const Result<mdev::ManagedGpu>& managed) {
  if (!managed) return "its vGPUs need placements, and NVML does not report them: " + managed.error().message;
  if (managed->mig == mdev::GpuSwitch::on) return "it is in MIG mode, in which it has no mixed sizes";
  if (managed->mixed_sizes == mdev::GpuSwitch::unsupported)
    return "its board or its driver has no mixed sizes of vGPUs";
  const auto has_placements = [](const mdev::ManagedType& type) { return !type.placements.empty(); };
  return std::ranges::any_of(managed->types, has_placements)
             ? std::string()
             : "NVML reports no placements for vGPUs of different sizes";
}

Result<> read_claimable_facts(const HostFs& host, ClaimableFacts& facts) {
  if (facts.dra.empty()) return {};
  for (const vfio::PciAddress& gpu : facts.dra) {
    facts.roots.emplace(gpu, vfio::pcie_root(host, gpu));
    facts.bars.emplace(gpu, largest_bar_mib(host, gpu));
    const mdev::VgpuGpu* const vgpus = facts.node.vgpus.find(gpu);
    if (vgpus == nullptr || !vgpus->framework->binds_functions()) continue;
    if (!vgpus->parents.empty()) {
      const vfio::PciAddress& function = vgpus->parents.front().address;
      facts.bars.emplace(function, largest_bar_mib(host, function));
    }
  }
  const auto writes = stuck_writes(host);
  if (!writes) return fail(writes.error());
  for (const StuckWrite& write : *writes) {
    if (is_read(write)) continue;
    for (const auto& [address, function] : facts.node.inventory.functions)
      if (concerns(write, address.text())) facts.stuck.insert(address);
  }
  return {};
}

const std::vector<api::ClaimableGpu>& ClaimableGpusFile::published() {
  if (published_) return *published_;
  published_.emplace();
  const auto text = host_.read_file(api::kClaimableGpusFile, HostFs::Links::refused);
  if (!text && is_gone(text.error())) return *published_;
  auto read =
      text ? api::read_claimable_gpus(*text) : Result<std::vector<api::ClaimableGpu>>(fail(text.error()));
  is_readable_ = read.has_value();
  if (read)
    published_ = std::move(*read);
  else
    spdlog::warn("{}; the GPUs are given to DRA anew", read.error().message);
  return *published_;
}

Result<> ClaimableGpusFile::publish(std::vector<api::ClaimableGpu> gpus) {
  const bool is_same = published() == gpus && is_readable_;
  if (is_same && (gpus.empty() || host_.exists(api::kClaimableGpusFile))) return {};
  if (auto written = host_.write_file(api::kClaimableGpusFile, api::claimable_gpus_text(gpus)); !written)
    return written;
  published_ = std::move(gpus);
  is_readable_ = true;
  return {};
}

}  // namespace ferry::host
