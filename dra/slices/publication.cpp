// SPDX-License-Identifier: Apache-2.0
#include "dra/slices/publication.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "common/generation.h"
#include "common/text/words.h"
#include "dra/names.h"

namespace ferry::dra {
namespace {

/// GPUs of one IOMMU group in order of address, with the devices that claims have there.
struct Group {
  std::optional<std::uint32_t> number;  ///< absent: the only GPU is in no IOMMU group
  std::vector<const Gpu*> gpus;
  std::vector<const HeldDevice*> held = {};

  std::string text() const {
    return number ? fmt::format("IOMMU group {}", *number) : "GPU " + gpus.front()->address.text();
  }
};

/// GPUs without an IOMMU group share no counters.
std::string counter_set_of(const Gpu& gpu) {
  return gpu.iommu_group ? counter_set_name(*gpu.iommu_group) : "gpu-" + address_label(gpu.address);
}

constexpr Words<VgpuFramework, 3> kFrameworks = {
    {{"", VgpuFramework::none}, {"mdev", VgpuFramework::mdev}, {"vdev", VgpuFramework::vendor_vfio}}};

/// Every device has the same attributes of the driver's domain, since a CEL selector that reads a missing one
/// ends the pod's scheduling.
Attributes attributes_of(const Gpu& gpu, const VgpuType* type) {
  Attributes out = {
      {kType, std::string(type == nullptr ? kWhole : kVgpu)},
      {"productName", attribute_text(gpu.product)},
      {"vendorID", fmt::format("0x{:04x}", gpu.vendor)},
      {"deviceID", fmt::format("0x{:04x}", gpu.device)},
      {"iommuGroup", gpu.iommu_group ? std::int64_t{*gpu.iommu_group} : std::int64_t{-1}},
      {"profile", type == nullptr ? std::string() : attribute_text(type->name)},
      {"vgpuType", type == nullptr ? std::string() : attribute_text(type->short_name)},
      {"typeID", std::int64_t{type == nullptr ? 0 : type_number(type->id).value_or(0)}},
      {"vgpuFramework", std::string(type == nullptr ? "" : word_for(kFrameworks, gpu.framework))},
  };
  if (gpu.numa_node && *gpu.numa_node >= 0)
    out["resource.kubernetes.io/numaNode"] = std::int64_t{*gpu.numa_node};
  if (!gpu.pcie_root.empty()) out["resource.kubernetes.io/pcieRoot"] = attribute_text(gpu.pcie_root);
  return out;
}

std::vector<Taint> health_taints(const Gpu& gpu, bool whole) {
  if (gpu.is_ready(whole)) return {};
  return {{.key = std::string(kUnhealthyTaint), .value = taint_value(gpu.obstacle())}};
}

/// Reasons for not allocating a held device that lie in its hardware.
std::vector<Taint> health_taints(const Group& group, const HeldDevice& held) {
  const bool whole = is_whole(held.device);
  const auto found = std::ranges::find_if(group.gpus, [&](const Gpu* gpu) {
    return (whole || gpu->address == held.asked.gpu) && !gpu->is_ready(whole);
  });
  return found == group.gpus.end() ? std::vector<Taint>() : health_taints(**found, whole);
}

void taint_as_in_use(Device& device) {
  const std::string key(kInUseTaint);
  if (std::ranges::find(device.taints, key, &Taint::key) == device.taints.end())
    device.taints.push_back({.key = key, .value = {}});
}

/// Removes the fields that the server would drop: the slices that it returns would differ at each reading.
void strip_unsupported(const ServerFeatures& server, Device& device) {
  if (!server.taints) device.taints.clear();
  if (!server.counters) device.consumes.clear();
  if (server.compatibility_groups) return;
  for (CounterConsumption& consumption : device.consumes) consumption.compatibility_groups.clear();
}

/// The counters that allocated devices consume of a set.
Counters allocated_counters(std::span<const PublishedDevice> devices, const std::string& set) {
  Counters out;
  for (const PublishedDevice& published : devices)
    if (published.allocated) add_counters(published.device, set, out);
  return out;
}

/// True if more is used of a counter than the set has.
bool is_overdrawn(const CounterSet& set, const Counters& used) {
  return std::ranges::any_of(used, [&](const auto& counter) {
    const auto total = set.counters.find(counter.first);
    return total != set.counters.end() && counter.second > total->second;
  });
}

/// The scheduler does not count a held device whose claim the API has forgotten. While there is one, each
/// device for which no room is left beside those of claims gets a taint.
void taint_without_room(const CounterSet& set, const std::set<std::string>& held,
                        std::span<PublishedDevice> devices) {
  Counters used;
  bool forgotten = false;
  for (const PublishedDevice& published : devices) {
    const bool is_held = held.contains(published.device.name);
    if (is_held || published.allocated) add_counters(published.device, set.name, used);
    forgotten = forgotten || (is_held && !published.allocated);
  }
  if (!forgotten) return;
  for (PublishedDevice& published : devices) {
    Counters with_it = used;
    add_counters(published.device, set.name, with_it);
    if (!published.allocated && is_overdrawn(set, with_it)) taint_as_in_use(published.device);
  }
}

/// Decides the devices of one IOMMU group.
class GroupPlan {
 public:
  GroupPlan(const Group& group, const NodeModel& node, std::vector<std::string>& notes)
      : group_(group), server_(node.server), allocated_(node.allocated) {
    set_.name = counter_set_of(*group.gpus.back());
    for (const Gpu* gpu : group.gpus) {
      plans_.push_back(plan_gpu(*gpu, group.gpus.size(), notes));
      set_.counters.insert(plans_.back().counters.begin(), plans_.back().counters.end());
    }
    if (set_.counters.empty()) set_.counters["gpu"] = 1;
    // The names would be compared between all GPUs of the group. A claim from before they were published has
    // none, and none is compatible with no name.
    uses_groups_ = server_.compatibility_groups && plans_.size() == 1 && group.gpus.front()->has_one_size() &&
                   !plans_.front().vgpus.empty() &&
                   std::ranges::all_of(group.held, [](const HeldDevice* held) {
                     return has_compatibility_groups(held->device);
                   });
    for (std::size_t i = 0; i < plans_.size(); ++i) add_vgpus(*group.gpus[i], plans_[i]);
    add_whole(notes);
    if (!server_.counters) drop_counters(notes);
  }

  const CounterSet& set() const { return set_; }
  const std::vector<PublishedDevice>& candidates() const { return candidates_; }

  /// True if the held devices have the counters that they would get now.
  bool agrees(const HeldDevice& held) const {
    const auto found = std::ranges::find_if(candidates_, [&](const PublishedDevice& candidate) {
      return candidate.device.name == held.device.name;
    });
    return found != candidates_.end() && held.counters == set_ &&
           consumed_counters(found->device) == consumed_counters(held.device);
  }

 private:
  void add_vgpus(const Gpu& gpu, const GpuPlan& plan) {
    std::set<std::uint64_t> sizes;  // in bytes, of the vGPUs that claims have
    for (const HeldDevice* held : group_.held)
      if (held->asked.gpu == gpu.address && !is_whole(held->device))
        sizes.insert(framebuffer_of(held->device));
    const std::vector<Taint> health = health_taints(gpu, false);
    for (const Vgpu& vgpu : plan.vgpus) {
      const std::uint64_t size = vgpu.type->framebuffer_mib * kMiB;
      Device device{.name = vgpu_device_name(gpu.address, vgpu.type->id, vgpu.number),
                    .attributes = attributes_of(gpu, vgpu.type),
                    .capacity = {{kFramebuffer, size}},
                    .consumes = {{.set = set_.name, .counters = vgpu.counters}},
                    .taints = health};
      if (uses_groups_)
        device.consumes.front().compatibility_groups = {fmt::format("size-{}", vgpu.type->framebuffer_mib)};
      // Also beside compatibility groups: the scheduler reads those of claims that the API knows.
      if (gpu.has_one_size() && !sizes.empty() && !sizes.contains(size))
        device.taints.push_back(
            {.key = std::string(kOtherSizeTaint), .value = std::to_string(*sizes.begin() / kMiB)});
      api::RequestedDevice asked{.gpu = gpu.address, .type = vgpu.type->id};
      if (gpu.mixed_sizes) asked.placement = vgpu.number;
      add({.asked = std::move(asked), .device = std::move(device)}, vgpu.type->allowed, !health.empty());
    }
  }

  void add_whole(std::vector<std::string>& notes) {
    const Gpu& first = *group_.gpus.front();
    const GpuPlan& plan = plans_.front();
    std::uint64_t memory = first.memory_mib != 0 ? first.memory_mib : plan.framebuffer_mib;
    // A BAR has the next power of two above the memory, or shows less of it: there is more than half of it.
    if (memory == 0) memory = first.bar_mib / 2;
    Device device{.name = whole_device_name(first.address),
                  .attributes = attributes_of(first, nullptr),
                  .capacity = {{kFramebuffer, memory * kMiB}},
                  .consumes = {{.set = set_.name, .counters = set_.counters}}};
    if (fits_pci_bus_id(first.address))
      device.attributes["resource.kubernetes.io/pciBusID"] = first.address.text();
    if (uses_groups_) device.consumes.front().compatibility_groups = {kWhole};
    for (const Gpu* gpu : group_.gpus)
      if (device.taints.empty()) device.taints = health_taints(*gpu, true);
    const bool unhealthy = !device.taints.empty();
    const bool allowed = std::ranges::all_of(group_.gpus, &Gpu::whole);
    if (allowed && group_.gpus.size() > 1)
      notes.push_back(
          fmt::format("{}: its {} GPUs are one device, which shows the memory of GPU {} alone; "
                      "KubeVirt gives a VM only that GPU",
                      group_.text(), group_.gpus.size(), first.address.text()));
    add({.asked = {.gpu = first.address}, .device = std::move(device)}, allowed, unhealthy);
  }

  /// `unhealthy`: without taints in the server, the device can only be left out.
  void add(PublishedDevice device, bool allowed, bool unhealthy) {
    // The driver may list a type or a placement twice.
    if (!names_.insert(device.device.name).second) return;
    if (!server_.taints) device.device.taints.clear();
    const bool all_for_dra = std::ranges::all_of(group_.gpus, &Gpu::for_dra);
    device.published = allowed && all_for_dra && (server_.taints || !unhealthy);
    candidates_.push_back(std::move(device));
  }

  /// True for devices of one group that may be allocated side by side without counters.
  static bool can_be_together(const PublishedDevice& a, const PublishedDevice& b) {
    if (a.device.name == b.device.name) return true;
    if (is_whole(a.device) || is_whole(b.device)) return false;
    return a.asked.gpu != b.asked.gpu || a.asked.type == b.asked.type;
  }

  /// Without counters the scheduler cannot keep two devices of a GPU apart. So only the whole device is
  /// published, or else the vGPUs of the only type, and none of them beside the whole device or another type
  /// that a claim has.
  void drop_counters(std::vector<std::string>& notes) {
    set_ = {};
    std::map<vfio::PciAddress, std::set<std::string>> types;
    bool whole = false;
    for (PublishedDevice& candidate : candidates_) {
      candidate.device.consumes.clear();
      if (!candidate.published) continue;
      if (is_whole(candidate.device))
        whole = true;
      else
        types[candidate.asked.gpu].insert(candidate.asked.type);
    }
    const bool one_type =
        std::ranges::none_of(group_.gpus, &Gpu::mixed_sizes) &&
        std::ranges::all_of(types, [](const auto& of_gpu) { return of_gpu.second.size() == 1; });
    std::vector<const PublishedDevice*> of_claims;  // prepared or not
    for (const PublishedDevice& candidate : candidates_) {
      const std::string& name = candidate.device.name;
      const bool held =
          std::ranges::any_of(group_.held, [&](const HeldDevice* one) { return one->device.name == name; });
      if (held || allocated_.contains(name)) of_claims.push_back(&candidate);
    }

    bool lacks_vgpus = false;
    for (PublishedDevice& candidate : candidates_) {
      const bool is_vgpu = !is_whole(candidate.device);
      const bool kind_fits = !is_vgpu || (!whole && one_type);
      const bool kept = kind_fits && std::ranges::all_of(of_claims, [&](const PublishedDevice* one) {
                          return can_be_together(*one, candidate);
                        });
      if (kept || !candidate.published) continue;
      candidate.published = false;
      lacks_vgpus = lacks_vgpus || is_vgpu;
    }
    if (lacks_vgpus)
      notes.push_back(
          fmt::format("{}: not all of its vGPUs, since the API server stores no counters "
                      "(feature gate DRAPartitionableDevices)",
                      group_.text()));
  }

  const Group& group_;
  const ServerFeatures& server_;
  const std::set<std::string>& allocated_;
  CounterSet set_;
  std::vector<GpuPlan> plans_;
  std::vector<PublishedDevice> candidates_;
  std::set<std::string> names_;
  bool uses_groups_ = false;
};

/// Publishes devices as claims have them, and nothing else of their group. `candidates`: devices of the group
/// as they would be without claims; those that are allocated and not held need the counters of the held ones.
void publish_as_held(const NodeModel& node, const Group& group, std::span<const PublishedDevice> candidates,
                     Publication& out) {
  CounterSet set;
  std::set<std::string> names;
  const auto publish = [&](const PublishedDevice& published) {
    out.devices.push_back(published);
    Device& device = out.devices.back().device;
    taint_as_in_use(device);
    strip_unsupported(node.server, device);
    out.devices.back().allocated = node.allocated.contains(device.name);
    names.insert(device.name);
  };
  for (const HeldDevice* one : group.held) {
    set.name = one->counters.name.empty() ? set.name : one->counters.name;
    for (const auto& [name, value] : one->counters.counters)
      set.counters[name] = std::max(set.counters[name], value);
    PublishedDevice published{.asked = one->asked, .device = one->device};
    published.device.taints = health_taints(group, *one);
    if (node.find(one->asked.gpu) == nullptr)
      published.device.taints.push_back({.key = std::string(kGoneTaint), .value = {}, .evicts = true});
    publish(published);
  }
  if (!node.server.counters) set = {};
  for (const PublishedDevice& candidate : candidates) {
    const std::string& name = candidate.device.name;
    if (!node.allocated.contains(name) || names.contains(name)) continue;
    // The pool stays valid only with counters that the set has.
    const auto& consumes = candidate.device.consumes;
    const bool has_counters = std::ranges::all_of(consumes, [&](const CounterConsumption& consumption) {
      return consumption.set == set.name &&
             std::ranges::all_of(consumption.counters,
                                 [&](const auto& counter) { return set.counters.contains(counter.first); });
    });
    if (has_counters)
      publish(candidate);
    else
      out.notes.push_back(fmt::format("{}: a claim has it, but its counters have changed", name));
  }
  if (!set.name.empty()) out.counter_sets.push_back(std::move(set));
}

void publish_group(const NodeModel& node, const Group& group, Publication& out) {
  if (group.gpus.empty()) return publish_as_held(node, group, {}, out);
  std::vector<std::string> notes;
  const GroupPlan plan(group, node, notes);
  if (std::ranges::all_of(group.gpus, &Gpu::for_dra))
    out.notes.insert(out.notes.end(), notes.begin(), notes.end());
  const bool agree =
      std::ranges::all_of(group.held, [&](const HeldDevice* held) { return plan.agrees(*held); });
  if (!agree) {
    out.notes.push_back(
        fmt::format("{}: only the devices that claims have, since its counters have changed", group.text()));
    return publish_as_held(node, group, plan.candidates(), out);
  }
  std::set<std::string> held_names;
  for (const HeldDevice* held : group.held) held_names.insert(held->device.name);
  std::vector<PublishedDevice> devices;
  for (const PublishedDevice& candidate : plan.candidates()) {
    const std::string& name = candidate.device.name;
    const bool held = held_names.contains(name);
    const bool allocated = node.allocated.contains(name);
    if (!candidate.published && !held && !allocated) continue;
    devices.push_back(candidate);
    devices.back().allocated = allocated;
    if (held || !candidate.published) taint_as_in_use(devices.back().device);
  }
  taint_without_room(plan.set(), held_names, devices);
  if (is_overdrawn(plan.set(), allocated_counters(devices, plan.set().name))) {
    if (!node.server.taints)
      std::erase_if(devices, [&](const PublishedDevice& published) {
        return !published.allocated && !held_names.contains(published.device.name);
      });
    for (PublishedDevice& published : devices) taint_as_in_use(published.device);
  }
  for (PublishedDevice& published : devices) strip_unsupported(node.server, published.device);
  if (!devices.empty() && !plan.set().name.empty()) out.counter_sets.push_back(plan.set());
  out.devices.insert(out.devices.end(), devices.begin(), devices.end());
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
    set_of_gpu.emplace(held.asked.gpu, held.counters.name);
  }
  std::map<vfio::PciAddress, const Gpu*> gpus;
  for (const Gpu& gpu : node.gpus) gpus.emplace(gpu.address, &gpu);
  for (const auto& [address, gpu] : gpus) {
    const auto set = set_of_gpu.emplace(address, counter_set_of(*gpu)).first;
    Group& group = out[set->second];
    group.number = gpu->iommu_group;
    group.gpus.push_back(gpu);
  }
  for (const HeldDevice* held : without_set) {
    const auto set = set_of_gpu.find(held->asked.gpu);
    out[set == set_of_gpu.end() ? "of " + held->asked.gpu.text() : set->second].held.push_back(held);
  }
  return out;
}

bool comes_before(const PublishedDevice& a, const PublishedDevice& b) {
  const bool whole = is_whole(a.device);
  if (whole != is_whole(b.device)) return !whole;
  if (framebuffer_of(a.device) != framebuffer_of(b.device))
    return framebuffer_of(a.device) < framebuffer_of(b.device);
  if (a.asked.gpu != b.asked.gpu) return whole ? b.asked.gpu < a.asked.gpu : a.asked.gpu < b.asked.gpu;
  const Attribute type = attribute_of(a.device, "typeID");
  if (const Attribute other = attribute_of(b.device, "typeID"); type != other) return type < other;
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
  ordered.reserve(groups.size());
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
  for (CounterSet set : publication.counter_sets) {
    for (const auto& [counter, used] : allocated_counters(publication.devices, set.name))
      if (const auto value = set.counters.find(counter); value != set.counters.end())
        value->second = std::max(value->second, used);
    if (out.empty() || out.back().counter_sets.size() == kMostCounterSets) out.push_back(empty);
    out.back().counter_sets.push_back(std::move(set));
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
  return same && !current.empty() ? newest : next_generation(std::max(newest, last));
}

void keep_taint_times(std::span<const ResourceSlice> published, std::span<ResourceSlice> next) {
  std::map<std::string, std::pair<std::uint64_t, const Device*>> newest;
  for (const ResourceSlice& slice : published)
    for (const Device& device : slice.devices) {
      auto& [generation, known] = newest[device.name];
      if (known != nullptr && generation > slice.generation) continue;
      generation = slice.generation;
      known = &device;
    }
  for (ResourceSlice& slice : next)
    for (Device& device : slice.devices) {
      const auto known = newest.find(device.name);
      if (known == newest.end()) continue;
      for (Taint& taint : device.taints)
        for (const Taint& former : known->second.second->taints)
          if (taint.time_added.empty() && taint.is_same(former)) taint.time_added = former.time_added;
    }
}

}  // namespace ferry::dra
