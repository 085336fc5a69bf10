// SPDX-License-Identifier: Apache-2.0
#include "kubevirt-plugin/allocation/device_lists.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>

namespace ferry::plugin {
namespace {

/// True if the kubelet cannot tell the two lists apart.
bool looks_the_same(const ListedResource& one, const ListedResource& other) {
  return std::equal(one.devices.begin(), one.devices.end(), other.devices.begin(), other.devices.end(),
                    [](const ListedDevice& a, const ListedDevice& b) {
                      return a.id == b.id && a.healthy() == b.healthy() && a.numa_node == b.numa_node;
                    });
}

using HeldGroups = std::unordered_map<std::uint32_t, std::string>;

/// For each allocated IOMMU group, the reason why its other devices are not available.
HeldGroups held_groups(const AllocationBook& book) {
  HeldGroups held;
  for (const auto& shelf : book.shelves())
    for (const auto& slot : shelf.slots)
      if (slot.holder != 0) {
        held.emplace(slot.device.iommu_group, fmt::format("held back: {} of its IOMMU group {} is allocated",
                                                          slot.device.id, slot.device.iommu_group));
      }
  for (const auto& claim : book.claims())
    if (claim.group)
      held.emplace(*claim.group, fmt::format("held back: {} of its IOMMU group {} is allocated as {}",
                                             claim.id, *claim.group, claim.resource));
  return held;
}

ListedResource list(const AllocationBook::Shelf& shelf, const HeldGroups& held,
                    const std::map<std::uint32_t, std::string>& left_open) {
  const bool all_nodes_known = std::all_of(shelf.slots.begin(), shelf.slots.end(), [](const auto& slot) {
    return slot.device.numa_node.has_value();
  });
  ListedResource listed{.name = shelf.name, .env_prefix = shelf.env_prefix, .devices = {}, .places = false};
  listed.devices.reserve(shelf.slots.size());
  for (const auto& slot : shelf.slots) {
    ListedDevice device{.id = slot.device.id,
                        .reason = slot.device.problem.empty() ? slot.fault : slot.device.problem,
                        .numa_node = all_nodes_known ? slot.device.numa_node : std::nullopt,
                        .iommu_group = slot.device.iommu_group,
                        .allocated = slot.holder != 0,
                        .awaits_release = false};
    // The pod's name counts only if it belongs to the present allocation.
    if (device.allocated && slot.named == slot.holder) device.pod = slot.pod;
    const auto open = left_open.find(device.iommu_group);
    const bool is_open = open != left_open.end();
    device.awaits_release = slot.gone || is_open || (device.allocated && !device.reason.empty());
    const auto holder = held.find(device.iommu_group);
    // An allocated device stays Healthy: the kubelet does not allocate it again anyway.
    if (device.reason.empty() && !device.allocated && holder != held.end()) {
      device.awaits_release = true;
      device.held_with_group = true;
      device.reason = holder->second;
    }
    // Unless it has forgotten that, and would give it to a pod that cannot have it.
    if (device.reason.empty() && is_open) device.reason = open->second;
    listed.devices.push_back(std::move(device));
  }
  return listed;
}

/// The places of one resource. `listed`: the device lists of `shelves`, in the same order. A place has no
/// NUMA node, since its pod's GPU may be on any.
ListedResource list_places(const ResourceName& name, EnvPrefix env_prefix,
                           const std::vector<AllocationBook::Shelf>& shelves,
                           std::span<const std::shared_ptr<const ListedResource>> listed) {
  ListedResource places{.name = name, .env_prefix = env_prefix, .devices = {}, .places = true};
  for (std::size_t i = 0; i < shelves.size(); ++i) {
    if (shelves[i].places) continue;
    for (std::size_t j = 0; j < shelves[i].slots.size(); ++j) {
      const auto& gpu = listed[i]->devices.at(j);
      for (const auto& companion : shelves[i].slots[j].device.companions) {
        if (companion.resource != name.text()) continue;
        places.devices.push_back(
            {.id = companion.place(),
             .reason = gpu.healthy() ? std::string() : fmt::format("{}: {}", gpu.id, gpu.reason),
             .numa_node = {}});
      }
    }
  }
  std::ranges::sort(places.devices, {}, &ListedDevice::id);
  return places;
}

/// True if an allocated vGPU's GPU carries vGPUs of several types. The kubelet decides which vGPU of a type
/// is free, but the plugin prefers the GPU for the next one.
bool decides_placement(const std::vector<AllocationBook::Shelf>& shelves) {
  std::unordered_map<std::string_view, const AllocationBook::Shelf*> carried_as;
  std::unordered_set<std::string_view> of_several_types;
  for (const auto& shelf : shelves)
    for (const auto& slot : shelf.slots)
      if (!slot.device.gpu.empty() && carried_as.emplace(slot.device.gpu, &shelf).first->second != &shelf)
        of_several_types.insert(slot.device.gpu);
  return std::ranges::any_of(shelves, [&](const AllocationBook::Shelf& shelf) {
    return std::ranges::any_of(shelf.slots, [&](const AllocationBook::Slot& slot) {
      return slot.holder != 0 && of_several_types.contains(slot.device.gpu);
    });
  });
}

/// True if a listed group has two allocations, as an earlier plugin that ignored groups could make. If the
/// kubelet allocates the group again, both may have been released without any notice.
bool has_group_of_two_holders(const AllocationBook& book) {
  std::unordered_map<std::uint32_t, AllocationBook::Ticket> holders;
  const auto is_second = [&](std::uint32_t group, AllocationBook::Ticket holder) {
    return holders.emplace(group, holder).first->second != holder;
  };
  std::unordered_set<std::uint32_t> ours;
  for (const auto& shelf : book.shelves()) {
    for (const auto& slot : shelf.slots) {
      if (slot.holder != 0 && is_second(slot.device.iommu_group, slot.holder)) return true;
      ours.insert(slot.device.iommu_group);
    }
  }
  return std::ranges::any_of(book.claims(), [&](const AllocationBook::Claim& claim) {
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

std::optional<NextLists> next_lists(const AllocationBook& book, const std::vector<bool>& stale,
                                    const Snapshot& before) {
  const auto& shelves = book.shelves();
  auto unlisted = book.unlisted();
  bool same = before.resources.size() == shelves.size() && before.unlisted == unlisted;
  if (same && std::ranges::find(stale, true) == stale.end()) return std::nullopt;

  const auto held = held_groups(book);
  auto next = std::make_shared<Snapshot>();
  next->generation = before.generation + 1;
  next->unlisted = std::move(unlisted);
  next->resources.resize(shelves.size());
  std::vector<bool> to_send(shelves.size());
  const auto former = [&](std::size_t i) {
    return i < before.resources.size() ? before.resources[i] : nullptr;
  };
  const auto put = [&](std::size_t i, ListedResource listed) {
    const auto old = former(i);
    to_send[i] = old == nullptr || !looks_the_same(*old, listed);
    const bool unchanged = old != nullptr && *old == listed;
    same = same && unchanged;
    next->resources[i] = unchanged ? old : std::make_shared<const ListedResource>(std::move(listed));
  };
  for (std::size_t i = 0; i < shelves.size(); ++i) {
    if (shelves[i].places) continue;
    if (former(i) != nullptr && !stale[i]) {
      next->resources[i] = former(i);
    } else {
      put(i, list(shelves[i], held, book.left_open()));
    }
  }
  for (std::size_t i = 0; i < shelves.size(); ++i)  // after the devices, on whose health places depend
    if (shelves[i].places)
      put(i, list_places(shelves[i].name, shelves[i].env_prefix, shelves, next->resources));
  next->awaits_release = !next->unlisted.empty() || any_device(*next, &ListedDevice::awaits_release) ||
                         decides_placement(shelves) || has_group_of_two_holders(book);
  if (same && next->awaits_release == before.awaits_release) return std::nullopt;
  next->is_allocated = any_device(*next, &ListedDevice::allocated);
  next->awaits_name =
      any_device(*next, [](const ListedDevice& device) { return device.allocated && device.pod.empty(); });
  return NextLists{.snapshot = std::move(next), .to_send = std::move(to_send)};
}

}  // namespace ferry::plugin
