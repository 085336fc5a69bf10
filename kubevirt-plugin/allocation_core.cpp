// SPDX-License-Identifier: Apache-2.0
#include "kubevirt-plugin/allocation_core.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "kubevirt-plugin/device_lists.h"
#include "kubevirt-plugin/preferred_allocation.h"

namespace ferry {
namespace {

Allocation allocation(const std::string& env_name, const std::vector<OfferedDevice>& devices,
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

std::string silent(std::uint32_t group) {
  return fmt::format(
      "the host does not answer what it is asked about IOMMU group {}: a reset of it lasts, a driver hangs, "
      "or there is nothing to ask with (memory, descriptors)",
      group);
}

bool is_number(std::string_view id) {
  return id.find_first_not_of("0123456789") == std::string_view::npos;
}

}  // namespace

AllocationCore::AllocationCore(const DeviceCheck& check, Listener listener, VgpuPlacement placement)
    : check_(check),
      listener_(std::move(listener)),
      placement_(placement),
      snapshot_(std::make_shared<const Snapshot>()) {}

void AllocationCore::came_before(std::set<std::string> former) {
  const std::scoped_lock lock(mutex_);
  book_.came_before(std::move(former));
}

std::shared_ptr<const Snapshot> AllocationCore::snapshot() const {
  const std::scoped_lock lock(mutex_);
  return snapshot_;
}

bool AllocationCore::is_claimed(std::string_view resource) const {
  const std::scoped_lock lock(mutex_);
  return std::ranges::find(book_.claims(), resource, &AllocationBook::Claim::resource) !=
         book_.claims().end();
}

AllocationCore::Ticket AllocationCore::ticket() const {
  const std::scoped_lock lock(mutex_);
  return book_.ticket();
}

AllocationBook::Groups AllocationCore::ask_groups(std::span<const Holding> held,
                                                  std::span<const Resource> scanned) const {
  std::set<std::string> numbered;
  std::set<std::string> offered;
  {
    const std::scoped_lock lock(mutex_);
    numbered = book_.numbered();
    for (const auto& shelf : book_.shelves()) offered.insert(shelf.name.text());
  }
  for (const auto& resource : scanned) offered.insert(resource.name.text());
  AllocationBook::Groups groups;
  for (const auto& holding : held) {
    for (const auto& id : holding.ids) {
      // An address or a UUID means one device of the host, whichever plugin allocated it. A number means one
      // only with its resource: if Ferry's resource has no numbers, a plugin of KubeVirt's own allocated it.
      const bool ours = !is_number(id) || numbered.contains(holding.resource);
      if (!ours && !offered.contains(holding.resource)) continue;
      if (const auto group = ours ? check_.group_of(id) : check_.group_numbered(id))
        groups.emplace(std::pair(holding.resource, id), *group);
    }
  }
  return groups;
}

void AllocationCore::replace(std::span<const Resource> scanned, std::span<const NotOffered> lost,
                             std::span<const NotOffered> reassigned) {
  std::vector<Holding> claimed;
  {
    const std::scoped_lock lock(mutex_);
    for (const auto& claim : book_.claims())
      claimed.push_back({.resource = claim.resource, .ids = {claim.id}});
  }
  const auto groups = ask_groups(claimed, scanned);
  News news;
  {
    const std::scoped_lock lock(mutex_);
    book_.replace(scanned, lost, reassigned, groups);
    news = publish();
  }
  tell(news);
}

void AllocationCore::node_gone(const std::string& node) {
  News news;
  {
    const std::scoped_lock lock(mutex_);
    book_.node_gone(node);
    news = publish();
  }
  tell(news);
}

Result<std::shared_ptr<DeviceStream>> AllocationCore::watch(std::string_view resource,
                                                            std::function<void()> wake) {
  const std::scoped_lock lock(mutex_);
  const auto shelf = book_.find_shelf(resource);
  if (!shelf) return fail(shelf.error());
  auto stream = std::make_shared<DeviceStream>(std::move(wake));
  stream->put(snapshot_->resources.at(*shelf));
  std::erase_if(watchers_, [](const Watcher& watcher) { return watcher.stream.expired(); });
  watchers_.push_back({.shelf = *shelf, .stream = stream});
  return stream;
}

/// A pod whose GPU has no such companion learns this from virt-launcher.
Result<std::vector<Allocation>> AllocationCore::take_places(
    std::size_t shelf, std::span<const std::vector<std::string>> containers) const {
  const auto& places = snapshot_->resources.at(shelf)->devices;
  std::set<std::string_view> asked;
  std::vector<Allocation> answers;
  for (const auto& ids : containers) {
    if (ids.empty()) return fail(Errc::usage, "a container asks for no device");
    for (const auto& id : ids) {
      if (std::ranges::find(places, id, &ListedDevice::id) == places.end())
        return fail(Errc::not_found, fmt::format("{}: no such device is offered", id));
      if (!asked.insert(id).second) return fail(Errc::usage, fmt::format("{}: asked for twice", id));
    }
    answers.push_back({.env_name = {}, .env_value = {}, .ids = ids, .nodes = {}, .companions = {}});
  }
  if (answers.empty()) return fail(Errc::usage, "the request is for no container");
  return answers;
}

AllocationCore::Verdict AllocationCore::judge(const AllocationBook::Grant& grant, HostAnswer said) {
  Verdict found;
  for (const auto& [group, id] : grant.groups) {
    const auto state = said.groups.find(group);
    if (state == said.groups.end() || state->second == GroupState::closed) continue;
    const std::string why = state->second == GroupState::open ? still_open(group) : silent(group);
    found.open.emplace(group, why);
    if (!found.error) {
      found.error = Error{
          .code = make_error_code(Errc::refused), .message = fmt::format("{}: {}", id, why), .hint = {}};
    }
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
  return found;
}

Result<std::vector<Allocation>> AllocationCore::conclude(const AllocationBook::Grant& grant,
                                                         HostAnswer said) {
  auto found = judge(grant, std::move(said));
  News news;
  {
    const std::scoped_lock lock(mutex_);
    if (found.error) {
      book_.give_up(grant, found);
    } else {
      book_.commit(grant);
    }
    news = publish();
  }
  tell(news);
  if (!found.error) return std::move(found.allocations);
  if (!found.faulty.empty() && listener_.doubted) listener_.doubted();
  return fail(std::move(*found.error));
}

void AllocationCore::allocate(std::string_view resource, std::span<const std::vector<std::string>> containers,
                              Allocated allocated) {
  Allocated tell_whom = [allocated = std::move(allocated),
                         name = std::string(resource)](Result<std::vector<Allocation>> result) {
    if (!result) result = fail(std::move(result).error().during("allocate " + name));
    allocated(std::move(result));
  };
  const auto grant = std::make_shared<AllocationBook::Grant>();
  {
    std::unique_lock lock(mutex_);
    if (const auto shelf = book_.find_shelf(resource); shelf && book_.shelves()[*shelf].places) {
      auto taken = take_places(*shelf, containers);
      lock.unlock();
      return tell_whom(std::move(taken));
    }
    // A request that is refused in any case must not open a node that a VM may be about to open.
    auto reserved = book_.reserve(resource, containers);
    if (!reserved) {
      lock.unlock();
      return tell_whom(fail(std::move(reserved).error()));
    }
    *grant = std::move(*reserved);
  }

  // The host is asked under no lock; the groups are reserved meanwhile.
  HandOut what{.groups = {}, .containers = grant->containers};
  for (const auto& [group, id] : grant->groups) what.groups.insert(group);
  check_.ask(std::move(what), [this, grant, tell_whom = std::move(tell_whom)](HostAnswer said) {
    tell_whom(conclude(*grant, std::move(said)));
  });
}

Result<std::vector<std::string>> AllocationCore::prefer(std::string_view resource,
                                                        std::span<const std::string> available,
                                                        std::span<const std::string> must_include,
                                                        int size) const {
  std::vector<Candidate> candidates;
  std::vector<std::string> in_order;
  std::set<std::string_view> unfit;
  std::shared_ptr<const ListedResource> listed;
  {
    const std::scoped_lock lock(mutex_);
    const auto shelf = book_.find_shelf(resource);
    if (!shelf) return fail(shelf.error());
    listed = snapshot_->resources.at(*shelf);
    if (book_.shelves()[*shelf].places) {
      in_order.assign(available.begin(), available.end());
      std::ranges::sort(in_order);
      available = in_order;
    }
    const auto add = [&](const OfferedDevice& device) {
      candidates.push_back({.id = device.id,
                            .numa_node = device.numa_node,
                            .iommu_group = device.iommu_group,
                            .bus_path = device.bus_path,
                            .gpu = device.gpu});
    };
    for (const auto& slot : book_.shelves()[*shelf].slots) add(slot.device);
    // A vGPU takes room on its GPU whatever its type, so those of other resources count too.
    for (const auto& other : book_.shelves())
      if (&other != &book_.shelves()[*shelf])
        for (const auto& slot : other.slots)
          if (slot.holder != 0 && !slot.device.gpu.empty()) add(slot.device);
  }
  // The kubelet may not have read that list yet. It decides itself when an allocated device is free.
  for (const auto& device : listed->devices)
    if (!device.healthy() && !device.allocated) unfit.insert(device.id);
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
    groups = book_.may_be_released(held, time);
  }
  const auto open = check_.open_groups(groups);
  std::map<std::uint32_t, bool> asked;
  for (const auto group : groups) asked.emplace(group, open.contains(group));
  return asked;
}

void AllocationCore::reconcile(std::span<const Holding> held, const ListTime& time) {
  const auto groups = ask_groups(held);
  const auto asked_open = ask_released(held, time);
  News news;
  {
    const std::scoped_lock lock(mutex_);
    book_.reconcile(held, groups, asked_open, time);
    news = publish();
  }
  tell(news);
}

AllocationCore::News AllocationCore::publish() {
  auto next = next_lists(book_, book_.take_stale(), *snapshot_);
  if (!next) return {};
  snapshot_ = std::move(next->snapshot);

  News news{.snapshot = true, .wakes = {}};
  for (const auto& watcher : watchers_) {
    auto stream = watcher.stream.lock();
    if (stream == nullptr || !next->to_send[watcher.shelf]) continue;
    stream->put(snapshot_->resources[watcher.shelf]);
    news.wakes.push_back(std::move(stream));
  }
  return news;
}

void AllocationCore::tell(const News& news) const {
  for (const auto& stream : news.wakes) stream->wake();
  if (news.snapshot && listener_.changed) listener_.changed();
}

}  // namespace ferry
