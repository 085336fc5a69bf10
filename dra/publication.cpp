// SPDX-License-Identifier: Apache-2.0
#include "dra/publication.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "dra/names.h"

namespace ferry::dra {
namespace {

constexpr std::uint64_t kMiB = 1ULL << 20U;
// More vGPUs than any GPU makes: NVIDIA's driver knows 64 virtual functions.
constexpr std::uint64_t kMostVgpus = 256;
// Placements beyond this are no placements of a GPU.
constexpr std::uint64_t kMostExtent = 1ULL << 16U;

constexpr const char* kFramebuffer = "framebuffer";
constexpr const char* kWhole = "whole";

/// A vGPU that a GPU can make.
struct Vgpu {
  const VgpuType* type = nullptr;
  std::uint32_t number = 0;  ///< slot or placement
  Counters counters = {};
};

/// The counters of a GPU, and all vGPUs that it can make, also of types that the admin does not allow.
struct GpuPlan {
  Counters counters;
  std::vector<Vgpu> vgpus = {};
  std::uint64_t framebuffer_mib = 0;  ///< 0: unknown
};

/// A device, and whether it is published while no claim has it.
struct Candidate {
  PublishedDevice device;
  bool published = true;
};

/// GPUs of one IOMMU group in order of address, with the devices that claims have there.
struct Group {
  std::uint32_t number = 0;
  std::vector<const Gpu*> gpus;
  std::vector<const HeldDevice*> held = {};
};

std::string text_of(const Attributes& attributes, const std::string& name) {
  const auto found = attributes.find(name);
  const auto* const text = found == attributes.end() ? nullptr : std::get_if<std::string>(&found->second);
  return text == nullptr ? std::string() : *text;
}

std::int64_t number_of(const Attributes& attributes, const std::string& name) {
  const auto found = attributes.find(name);
  const auto* const number = found == attributes.end() ? nullptr : std::get_if<std::int64_t>(&found->second);
  return number == nullptr ? 0 : *number;
}

bool is_whole(const Device& device) {
  return text_of(device.attributes, "type") == kWhole;
}

std::uint64_t framebuffer_of(const Device& device) {
  const auto found = device.capacity.find(kFramebuffer);
  return found == device.capacity.end() ? 0 : found->second;
}

/// The sets and counters that a device consumes, without compatibility groups.
std::map<std::string, Counters> consumed(const Device& device) {
  std::map<std::string, Counters> out;
  for (const CounterConsumption& consumption : device.consumes) out[consumption.set] = consumption.counters;
  return out;
}

bool has_compatibility_groups(const Device& device) {
  return std::ranges::any_of(device.consumes, [](const CounterConsumption& consumption) {
    return !consumption.compatibility_groups.empty();
  });
}

const Gpu* find_gpu(const NodeModel& node, const vfio::PciAddress& address) {
  const auto found = std::ranges::find(node.gpus, address, &Gpu::address);
  return found == node.gpus.end() ? nullptr : &*found;
}

// Counters of a GPU.

/// vGPUs of a type on a GPU that has no others. 0: unknown. `memory_mib`: of the GPU.
std::uint64_t most_vgpus(const VgpuType& type, std::uint64_t memory_mib) {
  if (type.framebuffer_mib == 0) return 0;
  const std::uint64_t by_memory = memory_mib / type.framebuffer_mib;
  return std::min(type.most_per_gpu ? std::uint64_t{*type.most_per_gpu} : by_memory, kMostVgpus);
}

/// The memory that the vGPUs of one type take at most, or the GPU's own if that is more.
std::uint64_t memory_of_equal_sizes(const Gpu& gpu) {
  std::uint64_t most = gpu.memory_mib;
  for (const VgpuType& type : gpu.types)
    most = std::max(most, most_vgpus(type, gpu.memory_mib) * type.framebuffer_mib);
  return most;
}

/// A value that each of `numbers` divides. If that is large, one that is large enough for the quotients,
/// rounded down, to allow each number and not one more (256 squared, and more).
std::uint64_t instances_for(const std::set<std::uint64_t>& numbers) {
  constexpr std::uint64_t kLarge = 1ULL << 20U;
  std::uint64_t out = 1;
  for (const std::uint64_t number : numbers) {
    out = std::lcm(out, number);
    if (out > kLarge) return kLarge;
  }
  return out;
}

GpuPlan plan_equal_sizes(const Gpu& gpu, const std::string& suffix) {
  const std::uint64_t memory = memory_of_equal_sizes(gpu);
  std::set<std::uint64_t> limits;
  const auto is_limited = [&](const VgpuType& type, std::uint64_t most) {
    return most < memory / type.framebuffer_mib;
  };
  for (const VgpuType& type : gpu.types)
    if (const std::uint64_t most = most_vgpus(type, gpu.memory_mib); most != 0 && is_limited(type, most))
      limits.insert(most);
  const std::uint64_t instances = instances_for(limits);
  GpuPlan out{.counters = {}, .framebuffer_mib = memory};
  out.counters[kFramebuffer + suffix] = memory * kMiB;
  if (!limits.empty()) out.counters["instances" + suffix] = instances;
  for (const VgpuType& type : gpu.types) {
    const std::uint64_t most = most_vgpus(type, gpu.memory_mib);
    if (most == 0) continue;
    Counters counters = {{kFramebuffer + suffix, type.framebuffer_mib * kMiB}};
    if (is_limited(type, most)) counters["instances" + suffix] = instances / most;
    for (std::uint32_t slot = 0; slot < most; ++slot)
      out.vgpus.push_back({.type = &type, .number = slot, .counters = counters});
  }
  return out;
}

bool has_placements(const VgpuType& type) {
  return type.framebuffer_mib != 0 && type.size != 0 && !type.placements.empty();
}

/// One more than the last unit that a vGPU can take.
std::uint64_t extent_of(const Gpu& gpu) {
  std::uint64_t extent = 0;
  for (const VgpuType& type : gpu.types) {
    if (!has_placements(type)) continue;
    for (const std::uint32_t placement : type.placements)
      extent = std::max(extent, std::uint64_t{placement} + type.size);
  }
  return extent;
}

/// The memory that any vGPUs at different placements can have together, or the GPU's own if that is more.
std::uint64_t memory_of_mixed_sizes(const Gpu& gpu, std::uint64_t extent) {
  std::uint64_t most = gpu.memory_mib;
  for (const VgpuType& type : gpu.types)
    if (has_placements(type))
      most = std::max(most, (type.framebuffer_mib * extent + type.size - 1) / type.size);
  return most;
}

bool fits_unit(const VgpuType& type, std::uint32_t placement, std::uint64_t unit) {
  return type.size % unit == 0 && placement % unit == 0;
}

/// The unit, in the driver's units, that keeps the most vGPUs with at most `most_units` counters; the
/// greatest of several. 0: no unit keeps any.
std::uint64_t choose_unit(const Gpu& gpu, std::uint64_t extent, std::uint64_t most_units) {
  std::uint64_t best = 0;
  std::size_t most_kept = 0;
  for (std::uint64_t unit = (extent + most_units - 1) / most_units; unit <= extent; ++unit) {
    std::size_t kept = 0;
    for (const VgpuType& type : gpu.types) {
      if (!has_placements(type) || type.size % unit != 0) continue;
      kept += static_cast<std::size_t>(std::ranges::count_if(
          type.placements, [&](std::uint32_t placement) { return fits_unit(type, placement, unit); }));
    }
    if (kept == 0 || kept < most_kept) continue;
    most_kept = kept;
    best = unit;
  }
  return best;
}

std::string unit_name(std::uint64_t unit, const std::string& suffix) {
  return fmt::format("unit-{:02}{}", unit, suffix);
}

GpuPlan plan_mixed_sizes(const Gpu& gpu, const std::string& suffix, std::size_t most_counters,
                         std::vector<std::string>& notes) {
  const std::uint64_t extent = extent_of(gpu);
  const bool plausible = extent != 0 && extent <= kMostExtent;
  const std::uint64_t unit = plausible ? choose_unit(gpu, extent, most_counters) : 0;
  if (unit == 0) {
    if (!gpu.types.empty())
      notes.push_back(fmt::format("GPU {}: no vGPUs, since their placements fit no {} units",
                                  gpu.address.text(), most_counters));
    GpuPlan out{.counters = {}, .framebuffer_mib = gpu.memory_mib};
    out.counters[kFramebuffer + suffix] = gpu.memory_mib * kMiB;
    return out;
  }
  const std::uint64_t units = (extent + unit - 1) / unit;
  const bool counts_memory = units < most_counters;
  GpuPlan out{.counters = {}, .framebuffer_mib = memory_of_mixed_sizes(gpu, extent)};
  if (counts_memory) out.counters[kFramebuffer + suffix] = out.framebuffer_mib * kMiB;
  for (std::uint64_t i = 0; i < units; ++i) out.counters[unit_name(i, suffix)] = 1;
  for (const VgpuType& type : gpu.types) {
    std::size_t kept = 0;
    for (const std::uint32_t placement : type.placements) {
      if (!has_placements(type) || !fits_unit(type, placement, unit)) continue;
      Vgpu vgpu{.type = &type, .number = placement};
      if (counts_memory) vgpu.counters[kFramebuffer + suffix] = type.framebuffer_mib * kMiB;
      for (std::uint64_t i = placement / unit; i < (std::uint64_t{placement} + type.size) / unit; ++i)
        vgpu.counters[unit_name(i, suffix)] = 1;
      out.vgpus.push_back(std::move(vgpu));
      ++kept;
    }
    if (has_placements(type) && kept != type.placements.size())
      notes.push_back(
          fmt::format("GPU {}: {} of {} placements of {} are left out, since the server takes {} "
                      "counters",
                      gpu.address.text(), type.placements.size() - kept, type.placements.size(),
                      type.short_name, kMostCounters));
  }
  return out;
}

GpuPlan plan_gpu(const Gpu& gpu, std::size_t gpus_of_group, std::vector<std::string>& notes) {
  const std::string suffix = gpus_of_group == 1 ? std::string() : "-" + address_label(gpu.address);
  const std::size_t most_counters = kMostCounters / gpus_of_group;
  if (most_counters < 2) {
    if (!gpu.types.empty())
      notes.push_back(fmt::format("GPU {}: no vGPUs, since its IOMMU group has {} GPUs", gpu.address.text(),
                                  gpus_of_group));
    return {.counters = {}, .framebuffer_mib = gpu.memory_mib};
  }
  GpuPlan out =
      gpu.mixed_sizes ? plan_mixed_sizes(gpu, suffix, most_counters, notes) : plan_equal_sizes(gpu, suffix);
  for (const VgpuType& type : gpu.types)
    if (gpu.mixed_sizes ? !has_placements(type) : most_vgpus(type, gpu.memory_mib) == 0)
      notes.push_back(fmt::format("GPU {}: {} is left out, since its {} unknown", gpu.address.text(),
                                  type.short_name.empty() ? type.id : type.short_name,
                                  gpu.mixed_sizes ? "placements are" : "size or its number is"));
  if (out.framebuffer_mib == 0) out.counters = {{"gpu" + suffix, 1}};
  return out;
}

// Devices.

const char* text_of(VgpuFramework framework) {
  switch (framework) {
    case VgpuFramework::none:
      break;
    case VgpuFramework::mdev:
      return "mdev";
    case VgpuFramework::vendor_vfio:
      return "vdev";
  }
  return "";
}

/// Every device has the same attributes of the driver's domain, since a CEL selector that reads a missing one
/// ends the pod's scheduling. Only partitions are absent where they are unknown: constraints compare them,
/// and two unknown ones are not equal.
Attributes attributes_of(const Gpu& gpu, const VgpuType* type) {
  Attributes out = {
      {"type", std::string(type == nullptr ? kWhole : "vgpu")},
      {"productName", attribute_text(gpu.product)},
      {"vendorID", fmt::format("0x{:04x}", gpu.vendor)},
      {"deviceID", fmt::format("0x{:04x}", gpu.device)},
      {"iommuGroup", std::int64_t{gpu.iommu_group}},
      {"profile", type == nullptr ? std::string() : attribute_text(type->name)},
      {"vgpuType", type == nullptr ? std::string() : attribute_text(type->short_name)},
      {"typeID", std::int64_t{type == nullptr ? 0 : type_number(type->id).value_or(0)}},
      {"vgpuFramework", std::string(type == nullptr ? "" : text_of(gpu.framework))},
  };
  if (gpu.numa_node) out["resource.kubernetes.io/numaNode"] = std::int64_t{*gpu.numa_node};
  if (!gpu.pcie_root.empty()) out["resource.kubernetes.io/pcieRoot"] = attribute_text(gpu.pcie_root);
  for (const auto& [size, partition] : gpu.partitions)
    out[fmt::format("partition{}", size)] = std::int64_t{partition};
  return out;
}

std::vector<Taint> health_taints(const Gpu& gpu) {
  switch (gpu.health) {
    case GpuHealth::ready:
      break;
    case GpuHealth::preparing:
      return {{.key = std::string(kPreparingTaint), .value = taint_value(gpu.reason)}};
    case GpuHealth::unhealthy:
      return {{.key = std::string(kUnhealthyTaint), .value = taint_value(gpu.reason)}};
  }
  return {};
}

/// Sizes, in bytes, of the vGPUs that claims have on a GPU.
std::set<std::uint64_t> held_sizes(const Group& group, const Gpu& gpu) {
  std::set<std::uint64_t> out;
  for (const HeldDevice* held : group.held)
    if (held->gpu == gpu.address && !is_whole(held->device)) out.insert(framebuffer_of(held->device));
  return out;
}

/// Decides the devices of one IOMMU group.
class GroupPlan {
 public:
  GroupPlan(const Group& group, const ServerFeatures& server, std::vector<std::string>& notes)
      : group_(group), server_(server) {
    set_.name = counter_set_name(group.number);
    for (const Gpu* gpu : group.gpus) {
      plans_.push_back(plan_gpu(*gpu, group.gpus.size(), notes));
      set_.counters.insert(plans_.back().counters.begin(), plans_.back().counters.end());
    }
    if (set_.counters.empty()) set_.counters["gpu"] = 1;
    uses_groups_ = can_use_groups();
    for (std::size_t i = 0; i < plans_.size(); ++i) add_vgpus(*group.gpus[i], plans_[i]);
    add_whole();
    if (!server.counters) drop_counters(notes);
  }

  const CounterSet& set() const { return set_; }
  const std::vector<Candidate>& candidates() const { return candidates_; }

  /// True if the held devices have the counters that they would get now.
  bool agrees(const HeldDevice& held) const {
    const auto found = std::ranges::find_if(candidates_, [&](const Candidate& candidate) {
      return candidate.device.device.name == held.device.name;
    });
    return found != candidates_.end() && held.counters == set_ &&
           consumed(found->device.device) == consumed(held.device);
  }

 private:
  /// The names would be compared between all GPUs of the group. A claim from before they were published has
  /// none, and none is compatible with no name.
  bool can_use_groups() const {
    return server_.compatibility_groups && plans_.size() == 1 && !group_.gpus.front()->mixed_sizes &&
           !plans_.front().vgpus.empty() && std::ranges::all_of(group_.held, [](const HeldDevice* held) {
             return has_compatibility_groups(held->device);
           });
  }

  bool all_for_dra() const { return std::ranges::all_of(group_.gpus, &Gpu::for_dra); }

  void add_vgpus(const Gpu& gpu, const GpuPlan& plan) {
    const std::set<std::uint64_t> sizes = held_sizes(group_, gpu);
    const std::vector<Taint> health = health_taints(gpu);
    for (const Vgpu& vgpu : plan.vgpus) {
      const std::uint64_t size = vgpu.type->framebuffer_mib * kMiB;
      Device device{.name = vgpu_device_name(gpu.address, vgpu.type->id, vgpu.number),
                    .attributes = attributes_of(gpu, vgpu.type),
                    .capacity = {{kFramebuffer, size}},
                    .consumes = {{.set = set_.name, .counters = vgpu.counters}},
                    .taints = health};
      if (uses_groups_)
        device.consumes.front().compatibility_groups = {fmt::format("size-{}", vgpu.type->framebuffer_mib)};
      else if (!gpu.mixed_sizes && !sizes.empty() && !sizes.contains(size))
        device.taints.push_back(
            {.key = std::string(kOtherSizeTaint), .value = std::to_string(*sizes.begin() / kMiB)});
      add(gpu, std::move(device), vgpu.type->allowed, !health.empty());
    }
  }

  void add_whole() {
    const Gpu& first = *group_.gpus.front();
    const GpuPlan& plan = plans_.front();
    const std::uint64_t memory = first.memory_mib != 0 ? first.memory_mib : plan.framebuffer_mib;
    Device device{.name = whole_device_name(first.address),
                  .attributes = attributes_of(first, nullptr),
                  .capacity = {{kFramebuffer, memory * kMiB}},
                  .consumes = {{.set = set_.name, .counters = set_.counters}}};
    if (fits_pci_bus_id(first.address))
      device.attributes["resource.kubernetes.io/pciBusID"] = first.address.text();
    if (uses_groups_) device.consumes.front().compatibility_groups = {kWhole};
    for (const Gpu* gpu : group_.gpus)
      if (device.taints.empty()) device.taints = health_taints(*gpu);
    const bool unhealthy = !device.taints.empty();
    add(first, std::move(device), std::ranges::all_of(group_.gpus, &Gpu::whole), unhealthy);
  }

  /// `unhealthy`: without taints in the server, the device can only be left out.
  void add(const Gpu& gpu, Device device, bool allowed, bool unhealthy) {
    if (!server_.taints) device.taints.clear();
    const bool published = allowed && all_for_dra() && (server_.taints || !unhealthy);
    candidates_.push_back(
        {.device = {.gpu = gpu.address, .device = std::move(device)}, .published = published});
  }

  /// Without counters the scheduler cannot keep two devices of a GPU apart. So only the whole device is
  /// published, or else the vGPUs of the only type, and none of them while a claim has a device of the group.
  void drop_counters(std::vector<std::string>& notes) {
    set_ = {};
    std::map<vfio::PciAddress, std::set<std::string>> types;
    bool whole = false;
    for (Candidate& candidate : candidates_) {
      Device& device = candidate.device.device;
      device.consumes.clear();
      if (!candidate.published) continue;
      if (is_whole(device))
        whole = true;
      else
        types[candidate.device.gpu].insert(text_of(device.attributes, "vgpuType"));
    }
    const bool one_type =
        std::ranges::none_of(group_.gpus, &Gpu::mixed_sizes) &&
        std::ranges::all_of(types, [](const auto& of_gpu) { return of_gpu.second.size() == 1; });
    const bool only_held = !group_.held.empty();
    if (!only_held && (types.empty() || (!whole && one_type))) return;
    if (!types.empty())
      notes.push_back(
          fmt::format("IOMMU group {}: not all of its vGPUs, since the API server stores no counters "
                      "(feature gate DRAPartitionableDevices)",
                      group_.number));
    for (Candidate& candidate : candidates_)
      if (only_held || !is_whole(candidate.device.device)) candidate.published = false;
  }

  const Group& group_;
  const ServerFeatures& server_;
  CounterSet set_;
  std::vector<GpuPlan> plans_;
  std::vector<Candidate> candidates_;
  bool uses_groups_ = false;
};

/// Publishes devices as claims have them, and nothing else of their group.
void publish_as_held(const NodeModel& node, std::span<const HeldDevice* const> held, Publication& out) {
  CounterSet set;
  for (const HeldDevice* one : held) {
    set.name = one->counters.name.empty() ? set.name : one->counters.name;
    for (const auto& [name, value] : one->counters.counters)
      set.counters[name] = std::max(set.counters[name], value);
    Device device = one->device;
    device.taints.clear();
    if (find_gpu(node, one->gpu) == nullptr && node.server.taints)
      device.taints.push_back(
          {.key = std::string(kGoneTaint), .value = {}, .effect = TaintEffect::no_execute});
    out.devices.push_back({.gpu = one->gpu, .device = std::move(device)});
  }
  if (!set.name.empty()) out.counter_sets.push_back(std::move(set));
}

void publish_group(const NodeModel& node, const Group& group, Publication& out) {
  if (group.gpus.empty()) return publish_as_held(node, group.held, out);
  std::vector<std::string> notes;
  const GroupPlan plan(group, node.server, notes);
  if (std::ranges::all_of(group.gpus, &Gpu::for_dra))
    out.notes.insert(out.notes.end(), notes.begin(), notes.end());
  const bool agree =
      std::ranges::all_of(group.held, [&](const HeldDevice* held) { return plan.agrees(*held); });
  if (!agree) {
    out.notes.push_back(fmt::format(
        "IOMMU group {}: only the devices that claims have, since its counters have changed", group.number));
    return publish_as_held(node, group.held, out);
  }
  std::set<std::string> held_names;
  for (const HeldDevice* held : group.held) held_names.insert(held->device.name);
  bool any = false;
  for (const Candidate& candidate : plan.candidates()) {
    const bool held = held_names.contains(candidate.device.device.name);
    if (!candidate.published && !held) continue;
    out.devices.push_back(candidate.device);
    if (held) out.devices.back().device.taints.clear();
    any = true;
  }
  if (any && !plan.set().name.empty()) out.counter_sets.push_back(plan.set());
}

/// The groups by the names of their counter sets: those of GPUs, and those that only claims know. A GPU
/// belongs to the group of its held devices, even if the kernel has given it another group since.
std::map<std::string, Group> groups_of(const NodeModel& node) {
  std::map<std::string, Group> out;
  std::map<vfio::PciAddress, std::string> set_of_gpu;
  std::set<std::string> names;
  std::vector<const HeldDevice*> without_set;
  for (const HeldDevice& held : node.held) {
    if (!names.insert(held.device.name).second) continue;
    if (held.counters.name.empty()) {
      without_set.push_back(&held);
      continue;
    }
    out[held.counters.name].held.push_back(&held);
    set_of_gpu.emplace(held.gpu, held.counters.name);
  }
  std::map<vfio::PciAddress, const Gpu*> gpus;
  for (const Gpu& gpu : node.gpus) gpus.emplace(gpu.address, &gpu);
  for (const auto& [address, gpu] : gpus) {
    const auto set = set_of_gpu.emplace(address, counter_set_name(gpu->iommu_group)).first;
    Group& group = out[set->second];
    group.number = gpu->iommu_group;
    group.gpus.push_back(gpu);
  }
  for (const HeldDevice* held : without_set) {
    const auto set = set_of_gpu.find(held->gpu);
    out[set == set_of_gpu.end() ? "of " + held->gpu.text() : set->second].held.push_back(held);
  }
  return out;
}

bool comes_before(const PublishedDevice& a, const PublishedDevice& b) {
  const bool whole = is_whole(a.device);
  if (whole != is_whole(b.device)) return !whole;
  if (framebuffer_of(a.device) != framebuffer_of(b.device))
    return framebuffer_of(a.device) < framebuffer_of(b.device);
  if (a.gpu != b.gpu) return whole ? b.gpu < a.gpu : a.gpu < b.gpu;
  const std::int64_t type = number_of(a.device.attributes, "typeID");
  if (const std::int64_t other = number_of(b.device.attributes, "typeID"); type != other) return type < other;
  // Numbers at the end of a name: 2 comes before 10.
  if (a.device.name.size() != b.device.name.size()) return a.device.name.size() < b.device.name.size();
  return a.device.name < b.device.name;
}

/// The same counter sets and devices with the same counters, so that readers may see the old and the new
/// slice in any mixture.
bool has_layout_of(const ResourceSlice& a, const ResourceSlice& b) {
  return a.index == b.index && a.count == b.count && a.counter_sets == b.counter_sets &&
         std::ranges::equal(a.devices, b.devices, [](const Device& one, const Device& other) {
           return one.name == other.name && one.consumes == other.consumes;
         });
}

// Availability of a device for a claim.

std::string claim_text(const HeldDevice& held) {
  return fmt::format("the claim with UID {}", held.claim);
}

bool is_in_group_of(const NodeModel& node, const vfio::PciAddress& a, const vfio::PciAddress& b) {
  if (a == b) return true;
  const Gpu* const one = find_gpu(node, a);
  const Gpu* const other = find_gpu(node, b);
  return one != nullptr && other != nullptr && one->iommu_group == other->iommu_group;
}

Result<> check_gpu(const Gpu& gpu, const PublishedDevice& device) {
  if (gpu.health == GpuHealth::ready) return {};
  const char* const state = gpu.health == GpuHealth::preparing ? "being prepared" : "unhealthy";
  return fail(Errc::refused,
              fmt::format("{}: GPU {} is {}: {}", device.device.name, gpu.address.text(), state, gpu.reason),
              "the claim waits until the GPU is ready");
}

Result<> check_neighbour(const NodeModel& node, const Gpu& gpu, const PublishedDevice& device,
                         const HeldDevice& held) {
  const std::string& name = device.device.name;
  if (!is_in_group_of(node, held.gpu, gpu.address)) return {};
  if (is_whole(device.device) || is_whole(held.device))
    return fail(
        Errc::refused,
        fmt::format("{}: {} has {} of the same IOMMU group", name, claim_text(held), held.device.name),
        "the claim waits until that one has ended");
  const std::uint64_t size = framebuffer_of(device.device);
  const std::uint64_t other = framebuffer_of(held.device);
  if (gpu.mixed_sizes || held.gpu != gpu.address || size == other) return {};
  return fail(Errc::refused,
              fmt::format("{}: the vGPUs of GPU {} have {} MiB each now, and this one needs {} MiB", name,
                          gpu.address.text(), other / kMiB, size / kMiB),
              "the claim waits until these vGPUs are gone");
}

Result<> check_counters(const Publication& publication, std::span<const HeldDevice> others,
                        const PublishedDevice& device) {
  for (const CounterConsumption& consumption : device.device.consumes) {
    const CounterSet* const set = publication.counter_set(consumption.set);
    for (const auto& [counter, needed] : consumption.counters) {
      std::uint64_t used = 0;
      for (const HeldDevice& held : others) {
        const std::map<std::string, Counters> sets = consumed(held.device);
        const auto of_set = sets.find(consumption.set);
        if (of_set == sets.end()) continue;
        const auto found = of_set->second.find(counter);
        used += found == of_set->second.end() ? 0 : found->second;
      }
      const auto value = set == nullptr ? Counters::const_iterator() : set->counters.find(counter);
      const std::uint64_t total = set == nullptr || value == set->counters.end() ? 0 : value->second;
      if (used + needed <= total) continue;
      return fail(
          Errc::refused,
          fmt::format("{}: it needs {} of the counter {}, and claims use {} of {}", device.device.name,
                      quantity_text(needed), counter, quantity_text(used), quantity_text(total)),
          "the claim waits until others have ended");
    }
  }
  return {};
}

/// `held`: all devices that claims have, with those of this claim that were checked before.
Result<> check_one(const NodeModel& node, const Publication& publication, std::span<const HeldDevice> held,
                   const std::string& name, std::string_view claim) {
  const PublishedDevice* const device = publication.device(name);
  const Gpu* const gpu = device == nullptr ? nullptr : find_gpu(node, device->gpu);
  if (gpu == nullptr)
    return fail(Errc::not_found, fmt::format("{}: this node has no such device now", name),
                "delete the pod, so that its claim is allocated again");
  std::vector<HeldDevice> others;
  for (const HeldDevice& one : held) {
    if (one.device.name != name)
      others.push_back(one);
    else if (one.claim != claim)
      return fail(Errc::refused, fmt::format("{}: {} still has it", name, claim_text(one)),
                  "the claim waits until that one has ended");
    else
      return {};
  }
  if (auto ready = check_gpu(*gpu, *device); !ready) return ready;
  for (const HeldDevice& other : others)
    if (auto fits = check_neighbour(node, *gpu, *device, other); !fits) return fits;
  return check_counters(publication, others, *device);
}

}  // namespace

const PublishedDevice* Publication::device(std::string_view name) const {
  const auto found = std::ranges::find_if(
      devices, [&](const PublishedDevice& published) { return published.device.name == name; });
  return found == devices.end() ? nullptr : &*found;
}

const CounterSet* Publication::counter_set(std::string_view name) const {
  const auto found = std::ranges::find(counter_sets, name, &CounterSet::name);
  return found == counter_sets.end() ? nullptr : &*found;
}

Publication publication_of(const NodeModel& node) {
  const std::map<std::string, Group> groups = groups_of(node);
  std::vector<const Group*> ordered;
  for (const auto& [name, group] : groups) ordered.push_back(&group);
  std::ranges::stable_sort(ordered, {}, &Group::number);
  Publication out;
  for (const Group* group : ordered) publish_group(node, *group, out);
  std::ranges::stable_sort(out.devices, comes_before);
  return out;
}

std::vector<ResourceSlice> slices_of(const Publication& publication, const SliceOwner& owner,
                                     std::uint64_t generation) {
  const ResourceSlice empty{.owner = owner, .pool = pool_name(owner.node), .generation = generation};
  std::vector<ResourceSlice> out;
  for (const CounterSet& set : publication.counter_sets) {
    if (out.empty() || out.back().counter_sets.size() == kMostCounterSets) out.push_back(empty);
    out.back().counter_sets.push_back(set);
  }
  const bool extras = std::ranges::any_of(publication.devices, [](const PublishedDevice& published) {
    return !published.device.consumes.empty() || !published.device.taints.empty();
  });
  const std::size_t most = extras ? kMostDevicesWithExtras : kMostDevices;
  for (std::size_t i = 0; i < publication.devices.size(); ++i) {
    if (i % most == 0) out.push_back(empty);
    out.back().devices.push_back(publication.devices[i].device);
  }
  if (out.empty()) out.push_back(empty);
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i].index = i;
    out[i].count = out.size();
  }
  return out;
}

std::uint64_t generation_for(std::span<const ResourceSlice> published, std::span<const ResourceSlice> next,
                             std::uint64_t last) {
  std::uint64_t newest = 0;
  for (const ResourceSlice& slice : published) newest = std::max(newest, slice.generation);
  std::vector<const ResourceSlice*> current;
  for (const ResourceSlice& slice : published)
    if (slice.generation == newest) current.push_back(&slice);
  std::ranges::stable_sort(current, {}, &ResourceSlice::index);
  const bool same =
      newest >= last && std::ranges::equal(current, next, [](const ResourceSlice* a, const ResourceSlice& b) {
        return has_layout_of(*a, b);
      });
  return same && !current.empty() ? newest : std::max(newest, last) + 1;
}

Result<> check_available(const NodeModel& node, const Publication& publication,
                         std::span<const std::string> devices, std::string_view claim) {
  std::vector<HeldDevice> held = node.held;
  for (const std::string& name : devices) {
    if (auto available = check_one(node, publication, held, name, claim); !available) return available;
    const bool has_it = std::ranges::any_of(
        held, [&](const HeldDevice& one) { return one.device.name == name && one.claim == claim; });
    if (has_it) continue;
    const PublishedDevice& device = *publication.device(name);
    held.push_back({.claim = std::string(claim), .gpu = device.gpu, .device = device.device, .counters = {}});
  }
  return {};
}

}  // namespace ferry::dra
