// SPDX-License-Identifier: Apache-2.0
#include "kubevirt-plugin/allocation/allocation_core.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <unordered_map>
#include <unordered_set>

#include <fmt/format.h>

#include "common/generation.h"

namespace ferry::plugin {
namespace {

using HeldGroups = std::unordered_map<std::uint32_t, std::string>;

/// Returns for each allocated IOMMU group the reason why its other devices are not available.
HeldGroups held_groups(const Allocations& allocations) {
  HeldGroups held;
  for (const auto& resource_devices : allocations.device_lists())
    for (const auto& entry : resource_devices.entries)
      if (entry.user != 0) {
        held.emplace(entry.device.iommu_group, fmt::format("held back: {} of its IOMMU group {} is allocated",
                                                           entry.device.id, entry.device.iommu_group));
      }
  for (const auto& claim : allocations.claims())
    if (claim.group)
      held.emplace(*claim.group, fmt::format("held back: {} of its IOMMU group {} is allocated as {}",
                                             claim.id, *claim.group, claim.resource));
  return held;
}

ListedResource list(const Allocations::ResourceDevices& resource_devices, const HeldGroups& held,
                    const Allocations& allocations) {
  const auto& left_open = allocations.left_open();
  const bool all_nodes_known = std::ranges::all_of(
      resource_devices.entries, [](const auto& entry) { return entry.device.numa_node.has_value(); });
  ListedResource listed{.name = resource_devices.name,
                        .env_prefix = resource_devices.env_prefix,
                        .devices = {},
                        .places = false};
  listed.devices.reserve(resource_devices.entries.size());
  for (const auto& entry : resource_devices.entries) {
    ListedDevice device{.id = entry.device.id,
                        .iommu_group = entry.device.iommu_group,
                        .numa_node = all_nodes_known ? entry.device.numa_node : std::nullopt,
                        .allocated = entry.user != 0,
                        .reason = entry.device.problem.empty() ? entry.fault : entry.device.problem,
                        .used_since = allocations.used_since(entry)};
    // The pod's name counts only if it belongs to the present allocation.
    if (device.allocated && entry.named == entry.user) device.pod = entry.pod;
    const auto open = left_open.find(device.iommu_group);
    const bool is_open = open != left_open.end();
    device.awaits_release = entry.gone || is_open || (device.allocated && !device.reason.empty());
    const auto user = held.find(device.iommu_group);
    if (device.reason.empty() && device.used_since) {
      device.awaits_release = true;
      device.reason = fmt::format("{} is being sanitized after its last use", entry.device.host_name());
    }
    // An allocated device stays Healthy: the kubelet does not allocate it again anyway.
    if (device.reason.empty() && !device.allocated && user != held.end()) {
      device.awaits_release = true;
      device.held_with_group = true;
      device.reason = user->second;
    }
    // Unless it has forgotten that, and would give it to a pod that cannot have it.
    if (device.reason.empty() && is_open) device.reason = open->second;
    device.healthy = device.reason.empty();
    listed.devices.push_back(std::move(device));
  }
  return listed;
}

/// The places of one resource. `listed`: the lists of all resources, in the order of `device_lists`. A place
/// has no NUMA node, since its pod's GPU may be on any.
ListedResource list_places(const ResourceName& name, EnvPrefix env_prefix,
                           const std::vector<Allocations::ResourceDevices>& device_lists,
                           std::span<const std::shared_ptr<const ListedResource>> listed) {
  ListedResource places{.name = name, .env_prefix = env_prefix, .devices = {}, .places = true};
  for (std::size_t i = 0; i < device_lists.size(); ++i) {
    if (device_lists[i].places) continue;
    for (std::size_t j = 0; j < device_lists[i].entries.size(); ++j) {
      const auto& gpu = listed[i]->devices.at(j);
      for (const auto& companion : device_lists[i].entries[j].device.companions) {
        if (companion.resource != name.text()) continue;
        places.devices.push_back(
            {.id = companion.place(),
             .healthy = gpu.healthy,
             .reason = gpu.healthy ? std::string() : fmt::format("{}: {}", gpu.id, gpu.reason)});
      }
    }
  }
  std::ranges::sort(places.devices, {}, &ListedDevice::id);
  return places;
}

/// True if an allocated vGPU's GPU carries vGPUs of several types. The kubelet decides which vGPU of a type
/// is free, but the plugin prefers the GPU for the next one.
bool decides_placement(const std::vector<Allocations::ResourceDevices>& device_lists) {
  std::unordered_map<std::string_view, const Allocations::ResourceDevices*> carried_as;
  std::unordered_set<std::string_view> of_several_types;
  for (const auto& resource_devices : device_lists)
    for (const auto& entry : resource_devices.entries)
      if (!entry.device.gpu.empty() &&
          carried_as.emplace(entry.device.gpu, &resource_devices).first->second != &resource_devices)
        of_several_types.insert(entry.device.gpu);
  return std::ranges::any_of(device_lists, [&](const Allocations::ResourceDevices& resource_devices) {
    return std::ranges::any_of(resource_devices.entries, [&](const Allocations::Entry& entry) {
      return entry.user != 0 && of_several_types.contains(entry.device.gpu);
    });
  });
}

/// True if a listed group has two allocations, as an earlier plugin that ignored groups could make. If the
/// kubelet allocates the group again, both may have been released without any notice.
bool has_group_of_two_users(const Allocations& allocations) {
  std::unordered_map<std::uint32_t, Allocations::Ticket> users;
  const auto is_second = [&](std::uint32_t group, Allocations::Ticket user) {
    return users.emplace(group, user).first->second != user;
  };
  std::unordered_set<std::uint32_t> ours;
  for (const auto& resource_devices : allocations.device_lists()) {
    for (const auto& entry : resource_devices.entries) {
      if (entry.user != 0 && is_second(entry.device.iommu_group, entry.user)) return true;
      ours.insert(entry.device.iommu_group);
    }
  }
  return std::ranges::any_of(allocations.claims(), [&](const Allocations::Claim& claim) {
    return claim.group && ours.contains(*claim.group) && is_second(*claim.group, claim.ticket);
  });
}

template <typename Predicate>
bool any_device(const Snapshot& snapshot, Predicate holds) {
  return std::ranges::any_of(snapshot.resources, [&](const auto& resource) {
    return std::ranges::any_of(resource->devices, holds);
  });
}

}  // namespace

std::optional<NextLists> next_lists(const Allocations& allocations, const std::vector<bool>& stale,
                                    const Snapshot& before) {
  const auto& device_lists = allocations.device_lists();
  auto unlisted = allocations.unlisted();
  bool same = before.resources.size() == device_lists.size() && before.unlisted == unlisted;
  if (same && std::ranges::find(stale, true) == stale.end()) return std::nullopt;

  const auto held = held_groups(allocations);
  auto next = std::make_shared<Snapshot>();
  next->generation = next_generation(before.generation);
  next->unlisted = std::move(unlisted);
  next->resources.resize(device_lists.size());
  std::vector<bool> to_send(device_lists.size());
  const auto former = [&](std::size_t i) {
    return i < before.resources.size() ? before.resources[i] : nullptr;
  };
  const auto put = [&](std::size_t i, ListedResource listed) {
    const auto old = former(i);
    // If only other fields differ, the kubelet cannot tell the two lists apart.
    const bool looks_the_same =
        old != nullptr &&
        std::ranges::equal(old->devices, listed.devices, [](const ListedDevice& a, const ListedDevice& b) {
          return a.id == b.id && a.healthy == b.healthy && a.numa_node == b.numa_node;
        });
    to_send[i] = !looks_the_same;
    const bool unchanged = old != nullptr && *old == listed;
    same = same && unchanged;
    next->resources[i] = unchanged ? old : std::make_shared<const ListedResource>(std::move(listed));
  };
  for (std::size_t i = 0; i < device_lists.size(); ++i) {
    if (device_lists[i].places) continue;
    if (former(i) != nullptr && !stale[i]) {
      next->resources[i] = former(i);
    } else {
      put(i, list(device_lists[i], held, allocations));
    }
  }
  for (std::size_t i = 0; i < device_lists.size(); ++i)  // after the devices, on whose health places depend
    if (device_lists[i].places)
      put(i, list_places(device_lists[i].name, device_lists[i].env_prefix, device_lists, next->resources));
  next->awaits_release = !next->unlisted.empty() || any_device(*next, &ListedDevice::awaits_release) ||
                         decides_placement(device_lists) || has_group_of_two_users(allocations) ||
                         allocations.gives_sanitized();
  if (same && next->awaits_release == before.awaits_release) return std::nullopt;
  next->is_allocated = any_device(*next, &ListedDevice::allocated);
  next->awaits_name =
      any_device(*next, [](const ListedDevice& device) { return device.allocated && device.pod.empty(); });
  return NextLists{.snapshot = std::move(next), .to_send = std::move(to_send)};
}

namespace {

Allocation allocation(const std::string& env_name, const std::vector<ScannedDevice>& devices,
                      std::span<const std::vector<std::string>> nodes) {
  Allocation answer{.env_name = env_name, .env_value = {}, .ids = {}, .nodes = {}, .companions = {}};
  const auto append = [](std::string& list, const std::string& id) {
    if (!list.empty()) list += ',';
    list += id;
  };
  for (const auto& device : devices) {
    append(answer.env_value, device.id);
    answer.ids.push_back(device.id);
    for (const auto& companion : device.companions)
      append(answer.companions[companion.env_name], companion.address);
  }
  for (const auto& of_one : nodes)
    for (const auto& node : of_one)
      if (std::find(answer.nodes.begin(), answer.nodes.end(), node) == answer.nodes.end())
        answer.nodes.push_back(node);
  return answer;
}

}  // namespace

AllocationCore::AllocationCore(const DeviceCheck& check, Listener listener, VgpuPlacement placement)
    : check_(check),
      listener_(std::move(listener)),
      placement_(placement),
      snapshot_(std::make_shared<const Snapshot>()) {}

void AllocationCore::came_before(std::set<std::string> former) {
  const std::scoped_lock lock(mutex_);
  allocations_.came_before(std::move(former));
}

void AllocationCore::remember_used(Allocations::UseCounts used) {
  const std::scoped_lock lock(mutex_);
  allocations_.remember_used(std::move(used));
}

void AllocationCore::follow(std::span<const api::SanitizedDevice> sanitized) {
  change([&] { allocations_.follow(sanitized); });
}

std::shared_ptr<const Snapshot> AllocationCore::snapshot() const {
  const std::scoped_lock lock(mutex_);
  return snapshot_;
}

bool AllocationCore::is_claimed(std::string_view resource) const {
  const std::scoped_lock lock(mutex_);
  return std::ranges::find(allocations_.claims(), resource, &Allocations::Claim::resource) !=
         allocations_.claims().end();
}

AllocationCore::Ticket AllocationCore::ticket() const {
  const std::scoped_lock lock(mutex_);
  return allocations_.ticket();
}

Allocations::Groups AllocationCore::ask_groups(std::span<const Holding> held,
                                               std::span<const Resource> scanned) const {
  std::set<std::string> numbered;
  std::set<std::string> advertised;
  {
    const std::scoped_lock lock(mutex_);
    numbered = allocations_.numbered();
    for (const auto& resource_devices : allocations_.device_lists())
      advertised.insert(resource_devices.name.text());
  }
  for (const auto& resource : scanned) advertised.insert(resource.name.text());
  Allocations::Groups groups;
  for (const auto& holding : held) {
    for (const auto& id : holding.ids) {
      // An address or a UUID means one device of the host, whichever plugin allocated it. A number means one
      // only with its resource: if Ferry's resource has no numbers, a plugin of KubeVirt's own allocated it.
      const bool is_number = id.find_first_not_of("0123456789") == std::string::npos;
      const bool ours = !is_number || numbered.contains(holding.resource);
      if (!ours && !advertised.contains(holding.resource)) continue;
      if (const auto group = ours ? check_.group_of(id) : check_.group_numbered(id))
        groups.emplace(std::pair(holding.resource, id), *group);
    }
  }
  return groups;
}

void AllocationCore::replace(std::span<const Resource> scanned, std::span<const NotAdvertised> lost,
                             std::span<const NotAdvertised> reassigned) {
  std::vector<Holding> claimed;
  {
    const std::scoped_lock lock(mutex_);
    for (const auto& claim : allocations_.claims())
      claimed.push_back({.resource = claim.resource, .ids = {claim.id}});
  }
  const auto groups = ask_groups(claimed, scanned);
  change([&] { allocations_.replace(scanned, lost, reassigned, groups); });
}

void AllocationCore::node_gone(const std::string& node) {
  change([&] { allocations_.node_gone(node); });
}

Result<std::shared_ptr<DeviceStream>> AllocationCore::watch(std::string_view resource,
                                                            std::function<void()> wake) {
  const std::scoped_lock lock(mutex_);
  const auto resource_devices = allocations_.find_resource(resource);
  if (!resource_devices) return fail(resource_devices.error());
  auto stream = std::make_shared<DeviceStream>(std::move(wake));
  stream->put(snapshot_->resources.at(*resource_devices));
  std::erase_if(watchers_, [](const Watcher& watcher) { return watcher.stream.expired(); });
  watchers_.push_back({.resource_devices = *resource_devices, .stream = stream});
  return stream;
}

/// A pod whose GPU has no such companion learns this from virt-launcher.
Result<std::vector<Allocation>> AllocationCore::take_places(
    std::size_t resource_devices, std::span<const std::vector<std::string>> containers) const {
  const auto& places = snapshot_->resources.at(resource_devices)->devices;
  std::set<std::string_view> asked;
  std::vector<Allocation> answers;
  for (const auto& ids : containers) {
    if (ids.empty()) return fail(Errc::usage, "a container asks for no device");
    for (const auto& id : ids) {
      if (std::ranges::find(places, id, &ListedDevice::id) == places.end())
        return fail(Errc::not_found, fmt::format("{}: no such device is advertised", id));
      if (!asked.insert(id).second) return fail(Errc::usage, fmt::format("{}: asked for twice", id));
    }
    answers.push_back({.env_name = {}, .env_value = {}, .ids = ids, .nodes = {}, .companions = {}});
  }
  if (answers.empty()) return fail(Errc::usage, "the request is for no container");
  return answers;
}

AllocationCore::Verdict AllocationCore::judge(const Allocations::Grant& grant, HostAnswer said) {
  Verdict found;
  for (const auto& [group, id] : grant.groups) {
    const auto state = said.groups.find(group);
    if (state == said.groups.end() || state->second == GroupState::closed) continue;
    std::string why = still_open(group);
    if (state->second == GroupState::silent)
      why = fmt::format(
          "the host does not answer what it is asked about IOMMU group {}: a reset of it lasts, a driver "
          "hangs, or there is nothing to ask with (memory, descriptors)",
          group);
    found.open.emplace(group, why);
    if (!found.error) found.error = Error{.code = Errc::refused, .message = fmt::format("{}: {}", id, why)};
  }
  if (found.error) return found;

  for (std::size_t i = 0; i < grant.containers.size(); ++i) {
    auto& container = said.containers.at(i);
    std::vector<std::vector<std::string>> nodes;
    for (std::size_t j = 0; j < grant.containers[i].size(); ++j) {
      auto& now = container.nodes.at(j);
      if (now) {
        nodes.push_back(std::move(*now));
      } else if (!found.error) {
        found.faulty = grant.containers[i][j].id;
        found.fault = now.error().message;
        found.error = std::move(now).error().during(found.faulty);
      }
    }
    nodes.push_back(std::move(container.shared));
    found.allocations.push_back(allocation(grant.env_name, grant.containers[i], nodes));
  }
  if (!found.error && !grant.used.empty()) {
    found.over = true;
    found.error = being_sanitized(grant.used);
  }
  return found;
}

Result<std::vector<Allocation>> AllocationCore::conclude(const Allocations::Grant& grant, HostAnswer said) {
  auto found = judge(grant, std::move(said));
  change([&] { found.error ? allocations_.give_up(grant, found) : allocations_.commit(grant); });
  if (!found.error) return std::move(found.allocations);
  if (!found.faulty.empty() && listener_.doubted) listener_.doubted();
  return fail(std::move(*found.error));
}

void AllocationCore::allocate(std::string_view resource, std::span<const std::vector<std::string>> containers,
                              Allocated allocated) {
  Allocated reply_to_kubelet = [allocated = std::move(allocated),
                                name = std::string(resource)](Result<std::vector<Allocation>> result) {
    if (!result) result = fail(std::move(result).error().during("allocate " + name));
    allocated(std::move(result));
  };
  const auto grant = std::make_shared<Allocations::Grant>();
  {
    std::unique_lock lock(mutex_);
    if (const auto resource_devices = allocations_.find_resource(resource);
        resource_devices && allocations_.device_lists()[*resource_devices].places) {
      auto taken = take_places(*resource_devices, containers);
      lock.unlock();
      return reply_to_kubelet(std::move(taken));
    }
    // A request that is refused in any case must not open a node that a VM may be about to open.
    auto reserved = allocations_.reserve(resource, containers);
    if (!reserved) {
      lock.unlock();
      return reply_to_kubelet(fail(std::move(reserved).error()));
    }
    *grant = std::move(*reserved);
  }

  // The host is asked under no lock; the groups are reserved meanwhile.
  HandOut what{.groups = {}, .containers = grant->containers};
  for (const auto& [group, id] : grant->groups) what.groups.insert(group);
  check_.ask(std::move(what), [this, grant, reply_to_kubelet = std::move(reply_to_kubelet)](HostAnswer said) {
    reply_to_kubelet(conclude(*grant, std::move(said)));
  });
}

Result<std::vector<std::string>> AllocationCore::prefer(std::string_view resource,
                                                        std::span<const std::string> available,
                                                        std::span<const std::string> must_include,
                                                        int size) const {
  std::vector<ScannedDevice> candidates;
  std::vector<std::string> in_order;
  std::set<std::string_view> unfit;
  std::shared_ptr<const ListedResource> listed;
  {
    const std::scoped_lock lock(mutex_);
    const auto resource_devices = allocations_.find_resource(resource);
    if (!resource_devices) return fail(resource_devices.error());
    listed = snapshot_->resources.at(*resource_devices);
    if (allocations_.device_lists()[*resource_devices].places) {
      in_order.assign(available.begin(), available.end());
      std::ranges::sort(in_order);
      available = in_order;
    }
    for (const auto& entry : allocations_.device_lists()[*resource_devices].entries)
      candidates.push_back(entry.device);
    // A vGPU takes room on its GPU whatever its type, so those of other resources count too.
    for (const auto& other : allocations_.device_lists())
      if (&other != &allocations_.device_lists()[*resource_devices])
        for (const auto& entry : other.entries)
          if (entry.user != 0 && !entry.device.gpu.empty()) candidates.push_back(entry.device);
  }
  // The kubelet may not have read that list yet. It decides itself when an allocated device is free.
  for (const auto& device : listed->devices)
    if (!device.healthy && !device.allocated) unfit.insert(device.id);
  std::vector<std::string> fit;
  std::ranges::copy_if(available, std::back_inserter(fit), [&](const std::string& id) {
    return !unfit.contains(id) || std::ranges::find(must_include, id) != must_include.end();
  });
  const bool enough = size >= 0 && fit.size() >= static_cast<std::size_t>(size);
  return preferred_allocation(candidates, enough ? std::span<const std::string>(fit) : available,
                              must_include, size, placement_);
}

std::map<std::uint32_t, bool> AllocationCore::ask_released(std::span<const Holding> held,
                                                           const ListTime& time) const {
  std::set<std::uint32_t> groups;
  {
    const std::scoped_lock lock(mutex_);
    groups = allocations_.may_be_released(held, time);
  }
  const auto open = check_.open_groups(groups);
  std::map<std::uint32_t, bool> asked;
  for (const auto group : groups) asked.emplace(group, open.contains(group));
  return asked;
}

void AllocationCore::reconcile(std::span<const Holding> held, const ListTime& time) {
  const auto groups = ask_groups(held);
  const auto asked_open = ask_released(held, time);
  change([&] { allocations_.reconcile(held, groups, asked_open, time); });
}

void AllocationCore::change(const std::function<void()>& how) {
  std::vector<std::shared_ptr<DeviceStream>> wakes;
  {
    const std::scoped_lock lock(mutex_);
    how();
    auto next = next_lists(allocations_, allocations_.take_stale(), *snapshot_);
    if (!next) return;
    snapshot_ = std::move(next->snapshot);
    for (const auto& watcher : watchers_) {
      auto stream = watcher.stream.lock();
      if (stream == nullptr || !next->to_send[watcher.resource_devices]) continue;
      stream->put(snapshot_->resources[watcher.resource_devices]);
      wakes.push_back(std::move(stream));
    }
  }
  for (const auto& stream : wakes) stream->wake();
  if (listener_.changed) listener_.changed();
}

}  // namespace ferry::plugin
