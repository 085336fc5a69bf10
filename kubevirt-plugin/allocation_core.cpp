// SPDX-License-Identifier: Apache-2.0
#include "kubevirt-plugin/allocation_core.h"

#include <algorithm>
#include <cstddef>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "kubevirt-plugin/preferred_allocation.h"

namespace ferry {
namespace {

/// Whether the kubelet could tell the two apart.
bool looks_the_same(const ListedResource& one, const ListedResource& other) {
  return std::equal(one.devices.begin(), one.devices.end(), other.devices.begin(), other.devices.end(),
                    [](const ListedDevice& a, const ListedDevice& b) {
                      return a.id == b.id && a.healthy() == b.healthy() && a.numa_node == b.numa_node;
                    });
}

Allocation allocation(const std::string& env_name, const std::vector<OfferedDevice>& devices,
                      std::span<const std::vector<std::string>> nodes) {
  Allocation answer{.env_name = env_name, .env_value = {}, .ids = {}, .nodes = {}};
  for (const auto& device : devices) {
    if (!answer.env_value.empty()) answer.env_value += ',';
    answer.env_value += device.id;
    answer.ids.push_back(device.id);
  }
  for (const auto& of_one : nodes)
    for (const auto& node : of_one)
      if (std::find(answer.nodes.begin(), answer.nodes.end(), node) == answer.nodes.end())
        answer.nodes.push_back(node);
  return answer;
}

template <typename Shelf>
auto* find_slot(Shelf& shelf, std::string_view id) {
  const auto slot = std::find_if(shelf.slots.begin(), shelf.slots.end(),
                                 [&](const auto& one) { return one.device.id == id; });
  return slot == shelf.slots.end() ? nullptr : &*slot;
}

/// Why nobody else may have a device of an IOMMU group, for each that is held.
template <typename Shelves, typename Claims>
auto held_groups(const Shelves& shelves, const Claims& claims) {
  std::unordered_map<std::uint32_t, std::string> held;
  for (const auto& shelf : shelves)
    for (const auto& slot : shelf.slots)
      if (slot.holder != 0) {
        held.emplace(slot.device.iommu_group, fmt::format("held back: {} of its IOMMU group {} is allocated",
                                                          slot.device.id, slot.device.iommu_group));
      }
  for (const auto& claim : claims)
    if (claim.group)
      held.emplace(*claim.group, fmt::format("held back: {} of its IOMMU group {} is allocated as {}",
                                             claim.id, *claim.group, claim.resource));
  return held;
}

std::string still_open(std::uint32_t group) {
  return fmt::format("/dev/vfio/{} is open: who had it before has not let go yet", group);
}

bool is_number(std::string_view id) {
  return id.find_first_not_of("0123456789") == std::string_view::npos;
}

template <typename Shelf>
ListedResource list(const Shelf& shelf, const std::unordered_map<std::uint32_t, std::string>& held,
                    const std::set<std::uint32_t>& left_open) {
  const bool all_nodes_known = std::all_of(shelf.slots.begin(), shelf.slots.end(), [](const auto& slot) {
    return slot.device.numa_node.has_value();
  });
  ListedResource listed{.name = shelf.name, .env_prefix = shelf.env_prefix, .devices = {}};
  listed.devices.reserve(shelf.slots.size());
  for (const auto& slot : shelf.slots) {
    ListedDevice device{.id = slot.device.id,
                        .reason = slot.device.problem.empty() ? slot.fault : slot.device.problem,
                        .numa_node = all_nodes_known ? slot.device.numa_node : std::nullopt,
                        .iommu_group = slot.device.iommu_group,
                        .allocated = slot.holder != 0,
                        .awaits_release = false};
    const bool is_open = left_open.contains(device.iommu_group);
    device.awaits_release = slot.gone || is_open || (device.allocated && !device.reason.empty());
    const auto holder = held.find(device.iommu_group);
    // An allocated device stays Healthy: the kubelet itself takes it out of what it gives.
    if (device.reason.empty() && !device.allocated && holder != held.end()) {
      device.awaits_release = true;
      device.reason = holder->second;
    }
    // Unless it has forgotten that, and would give it to a pod that cannot have it.
    if (device.reason.empty() && is_open) device.reason = still_open(device.iommu_group);
    listed.devices.push_back(std::move(device));
  }
  return listed;
}

}  // namespace

AllocationCore::AllocationCore(const DeviceCheck& check, Listener listener, VgpuPlacement placement,
                               std::set<std::string> former)
    : check_(check),
      listener_(std::move(listener)),
      placement_(placement),
      former_(std::move(former)),
      snapshot_(std::make_shared<const Snapshot>()) {}

std::shared_ptr<const Snapshot> AllocationCore::snapshot() const {
  const std::scoped_lock lock(mutex_);
  return snapshot_;
}

AllocationCore::Ticket AllocationCore::ticket() const {
  const std::scoped_lock lock(mutex_);
  return last_ticket_;
}

Result<std::size_t> AllocationCore::find_shelf(std::string_view resource) const {
  const auto shelf = std::find_if(shelves_.begin(), shelves_.end(),
                                  [&](const Shelf& one) { return one.name.text() == resource; });
  if (shelf == shelves_.end())
    return fail(Errc::not_found, fmt::format("no resource {} is offered", resource));
  return static_cast<std::size_t>(shelf - shelves_.begin());
}

AllocationCore::Groups AllocationCore::ask_groups(std::span<const Holding> held) const {
  std::set<std::string> numbered = former_;
  {
    const std::scoped_lock lock(mutex_);
    for (const auto& shelf : shelves_)
      if (shelf.env_prefix == EnvPrefix::none) numbered.insert(shelf.name.text());
  }
  Groups groups;
  for (const auto& holding : held) {
    for (const auto& id : holding.ids) {
      // An address or a UUID means one device of the host whoever gave it out, a number only with its
      // resource.
      if (is_number(id) && !numbered.contains(holding.resource)) continue;
      if (const auto group = check_.group_of(id)) groups.emplace(std::pair(holding.resource, id), *group);
    }
  }
  return groups;
}

/// Claims become allocations where the list has their devices by now.
void AllocationCore::take_up_claims(const Groups& groups) {
  std::erase_if(claims_, [&](Claim& claim) {
    if (const auto now = groups.find({claim.resource, claim.id}); now != groups.end())
      claim.group = now->second;
    const auto shelf = find_shelf(claim.resource);
    auto* const slot = shelf ? find_slot(shelves_[*shelf], claim.id) : nullptr;
    if (slot == nullptr) return false;
    if (slot->holder == 0) slot->holder = claim.ticket;
    return true;
  });
}

const AllocationCore::Claim* AllocationCore::claim_on(std::uint32_t group) const {
  const auto claim = std::ranges::find_if(claims_, [&](const Claim& one) { return one.group == group; });
  return claim == claims_.end() ? nullptr : &*claim;
}

void AllocationCore::replace(std::span<const Resource> scanned, std::span<const NotOffered> lost,
                             std::span<const NotOffered> reassigned) {
  std::vector<Holding> claimed;
  {
    const std::scoped_lock lock(mutex_);
    for (const auto& claim : claims_) claimed.push_back({.resource = claim.resource, .ids = {claim.id}});
  }
  const auto groups = ask_groups(claimed);
  News news;
  {
    const std::scoped_lock lock(mutex_);
    struct Loss {
      std::string_view reason;
      bool listed = false;  // even when nobody has it
    };
    std::unordered_map<std::string_view, Loss> by_name;
    for (const auto& device : lost) by_name.emplace(device.id, Loss{.reason = device.reason, .listed = true});
    for (const auto& device : reassigned) by_name.emplace(device.id, Loss{.reason = device.reason});
    // Kata's IDs are not what the host calls a device.
    const auto lost_for = [&](const OfferedDevice& device) {
      const auto loss = by_name.find(device.id);
      return loss == by_name.end() ? by_name.find(device.host_name()) : loss;
    };
    std::unordered_map<std::string, Slot> kept;  // of what was listed, and not in the scan
    for (auto& shelf : shelves_) {
      for (auto& slot : shelf.slots) {
        const auto loss = lost_for(slot.device);
        if (slot.holder != 0 || (loss != by_name.end() && loss->second.listed))
          kept.emplace(slot.device.id, slot);
      }
    }
    std::vector<Shelf> before = std::exchange(shelves_, {});
    for (const auto& shelf : before)
      shelves_.push_back({.name = shelf.name, .env_prefix = shelf.env_prefix, .slots = {}});
    for (const auto& resource : scanned) {
      auto at = find_shelf(resource.name.text());
      if (!at) {
        shelves_.push_back({.name = resource.name, .env_prefix = resource.env_prefix, .slots = {}});
        at = shelves_.size() - 1;
      }
      auto& shelf = shelves_[*at];
      shelf.env_prefix = resource.env_prefix;
      for (const auto& device : resource.devices) {
        const auto holder = kept.extract(device.id);
        shelf.slots.push_back({.device = device,
                               .holder = holder ? holder.mapped().holder : 0,
                               .before = holder ? holder.mapped().before : 0,
                               .fault = {}});
      }
    }
    for (std::size_t i = 0; i < before.size(); ++i) {
      for (auto& slot : before[i].slots) {
        if (!kept.contains(slot.device.id)) continue;
        const auto loss = lost_for(slot.device);
        slot.gone = loss == by_name.end() || !loss->second.listed;
        slot.device.problem = loss == by_name.end()
                                  ? "not to be had on the host any more, and still allocated"
                                  : std::string(loss->second.reason);
        slot.fault.clear();
        shelves_[i].slots.push_back(std::move(slot));
      }
    }
    for (auto& shelf : shelves_)
      std::sort(shelf.slots.begin(), shelf.slots.end(),
                [](const Slot& a, const Slot& b) { return a.device.id < b.device.id; });
    take_up_claims(groups);
    news = publish();
  }
  tell(news);
}

Result<std::shared_ptr<DeviceStream>> AllocationCore::watch(std::string_view resource,
                                                            std::function<void()> wake) {
  const std::scoped_lock lock(mutex_);
  const auto shelf = find_shelf(resource);
  if (!shelf) return fail(shelf.error());
  auto stream = std::make_shared<DeviceStream>(std::move(wake));
  stream->put(snapshot_->resources.at(*shelf));
  std::erase_if(watchers_, [](const Watcher& watcher) { return watcher.stream.expired(); });
  watchers_.push_back({.shelf = *shelf, .stream = stream});
  return stream;
}

std::map<std::uint32_t, std::string> AllocationCore::to_be_closed(const Request& request) const {
  std::map<std::uint32_t, std::string> groups;
  for (const auto& slots : request.containers)
    for (const auto* const slot : slots) groups.emplace(slot->device.iommu_group, slot->device.id);
  // What was given together is released together.
  for (const auto& shelf : shelves_)
    for (const auto& slot : shelf.slots)
      if (request.superseded.contains(slot.holder)) groups.emplace(slot.device.iommu_group, slot.device.id);
  for (const auto& claim : claims_)
    if (claim.group && request.superseded.contains(claim.ticket)) groups.emplace(*claim.group, claim.id);
  return groups;
}

Result<AllocationCore::Request> AllocationCore::examine(
    std::string_view resource, std::span<const std::vector<std::string>> containers) {
  const auto at = find_shelf(resource);
  if (!at) return fail(at.error());
  auto& shelf = shelves_[*at];

  Request request{.shelf = *at, .containers = {}, .superseded = {}};
  std::vector<Slot*> slots;
  for (const auto& ids : containers) {
    auto& asked = request.containers.emplace_back();
    if (ids.empty()) return fail(Errc::usage, "a container asks for no device");
    for (const auto& id : ids) {
      auto* const slot = find_slot(shelf, id);
      if (slot == nullptr) return fail(Errc::not_found, fmt::format("{}: no such device is offered", id));
      if (std::find(slots.begin(), slots.end(), slot) != slots.end())
        return fail(Errc::usage, fmt::format("{}: asked for twice", id));
      if (!slot->device.problem.empty() || !slot->fault.empty()) {
        return fail(Errc::refused,
                    fmt::format("{}: Unhealthy: {}", id,
                                slot->device.problem.empty() ? slot->fault : slot->device.problem));
      }
      if (pending_.contains(slot->holder))
        return fail(Errc::refused, fmt::format("{}: another request for it is not answered yet", id));
      if (slot->holder != 0) request.superseded.insert(slot->holder);
      slots.push_back(slot);
      asked.push_back(slot);
    }
  }
  if (slots.empty()) return fail(Errc::usage, "the request is for no container");

  for (const auto* const slot : slots) {
    if (const auto* const claim = claim_on(slot->device.iommu_group); claim != nullptr) {
      return fail(Errc::refused,
                  fmt::format("{}: its IOMMU group {} is held: {} of {} is allocated", slot->device.id,
                              slot->device.iommu_group, claim->id, claim->resource));
    }
    for (const auto& other : shelves_) {
      for (const auto& member : other.slots) {
        if (member.holder == 0 || member.device.iommu_group != slot->device.iommu_group ||
            request.superseded.contains(member.holder))
          continue;
        return fail(Errc::refused,
                    fmt::format("{}: its IOMMU group {} is held: {} of {} is allocated", slot->device.id,
                                slot->device.iommu_group, member.device.id, other.name.text()));
      }
    }
  }

  return request;
}

Result<AllocationCore::Grant> AllocationCore::reserve(std::string_view resource,
                                                      std::span<const std::vector<std::string>> containers) {
  auto request = examine(resource, containers);
  if (!request) return fail(std::move(request).error());
  const auto& shelf = shelves_[request->shelf];
  Grant grant{.ticket = ++last_ticket_,
              .env_name = env_name(shelf.env_prefix, shelf.name),
              .containers = {},
              .superseded = {},
              .groups = to_be_closed(*request)};
  grant.superseded = std::move(request->superseded);
  for (const auto& slots : request->containers) {
    auto& devices = grant.containers.emplace_back();
    for (auto* const slot : slots) {
      slot->before = std::exchange(slot->holder, grant.ticket);
      devices.push_back(slot->device);
    }
  }
  pending_.insert(grant.ticket);
  return grant;
}

/// To ask whether a group is open takes another thread's time more than ours: it looks while we do.
AllocationCore::HostAnswer AllocationCore::ask_host(const Grant& grant) const {
  std::vector<std::function<bool()>> answers;
  answers.reserve(grant.groups.size());
  for (const auto& [group, id] : grant.groups) answers.push_back(check_.ask_whether_open(group));

  HostAnswer found;
  for (const auto& devices : grant.containers) {
    std::vector<std::vector<std::string>> nodes;
    for (const auto& device : devices) {
      auto now = check_.nodes_now(device);
      if (now) {
        nodes.push_back(std::move(*now));
      } else if (!found.error) {
        found.error = std::move(now).error();
        found.faulty = device.id;
        found.fault = found.error->message;
      }
    }
    nodes.push_back(check_.shared_nodes(devices));
    found.allocations.push_back(allocation(grant.env_name, devices, nodes));
  }
  if (found.error) found.error = std::move(*found.error).during(found.faulty);
  auto answer = answers.begin();
  for (const auto& [group, id] : grant.groups) {
    if (!(*answer++)()) continue;
    found.open.insert(group);
    if (!found.error)
      found.error = Error{.code = make_error_code(Errc::refused),
                          .message = fmt::format("{}: {}", id, still_open(group)),
                          .hint = {}};
  }
  return found;
}

void AllocationCore::commit(const Grant& grant) {
  pending_.erase(grant.ticket);
  for (auto& shelf : shelves_) {
    for (auto& slot : shelf.slots) {
      if (slot.holder == grant.ticket) {
        if (std::exchange(slot.before, 0) == 0) mark_stale(slot.device.iommu_group);
      } else if (grant.superseded.contains(slot.holder)) {
        voided_[slot.device.id] = grant.ticket;
      }
    }
  }
  for (const Ticket ticket : grant.superseded) release(ticket);
  for (const auto& [group, id] : grant.groups) forget_open(group);
  renew(grant.ticket);
}

void AllocationCore::give_up(const Grant& grant, const HostAnswer& found) {
  pending_.erase(grant.ticket);
  for (auto& shelf : shelves_) {
    for (auto& slot : shelf.slots) {
      if (slot.device.id == found.faulty) {
        slot.fault = found.fault;
        shelf.stale = true;
      }
      if (slot.holder != grant.ticket) continue;
      slot.holder = std::exchange(slot.before, 0);
      mark_stale(slot.device.iommu_group);  // it may have been listed as allocated
    }
  }
  for (const auto group : found.open) {
    left_open_.insert(group);
    mark_stale(group);
  }
}

Result<std::vector<Allocation>> AllocationCore::allocate(
    std::string_view resource, std::span<const std::vector<std::string>> containers) {
  const auto during = [&] { return fmt::format("allocate {}", resource); };
  Grant grant;
  {
    const std::scoped_lock lock(mutex_);
    // What is refused in any case opens no node: a VM may be about to.
    auto reserved = reserve(resource, containers);
    if (!reserved) return fail(std::move(reserved).error().during(during()));
    grant = std::move(*reserved);
  }

  // The host is asked under no lock: the group is reserved meanwhile, and a slow answer delays nobody else.
  auto found = ask_host(grant);

  News news;
  {
    const std::scoped_lock lock(mutex_);
    if (found.error) {
      give_up(grant, found);
    } else {
      commit(grant);
    }
    news = publish();
  }
  tell(news);
  if (!found.error) return std::move(found.allocations);
  if (!found.faulty.empty() && listener_.doubted) listener_.doubted();
  return fail(std::move(*found.error).during(during()));
}

Result<std::vector<std::string>> AllocationCore::prefer(std::string_view resource,
                                                        std::span<const std::string> available,
                                                        std::span<const std::string> must_include,
                                                        int size) const {
  std::vector<Candidate> candidates;
  {
    const std::scoped_lock lock(mutex_);
    const auto shelf = find_shelf(resource);
    if (!shelf) return fail(shelf.error());
    for (const auto& slot : shelves_[*shelf].slots) {
      candidates.push_back({.id = slot.device.id,
                            .numa_node = slot.device.numa_node,
                            .iommu_group = slot.device.iommu_group,
                            .bus_path = slot.device.bus_path,
                            .gpu = slot.device.gpu});
    }
  }
  return preferred_allocation(candidates, available, must_include, size, placement_);
}

/// What a request that is not answered yet has, or would lose.
std::set<AllocationCore::Ticket> AllocationCore::being_decided() const {
  std::set<Ticket> tickets = pending_;
  for (const auto& shelf : shelves_)
    for (const auto& slot : shelf.slots)
      if (slot.before != 0) tickets.insert(slot.before);
  return tickets;
}

std::map<std::uint32_t, bool> AllocationCore::ask_released(std::span<const Holding> held,
                                                           Ticket settled) const {
  const auto listed = [&](std::string_view resource, const std::string& id) {
    return std::ranges::any_of(held, [&](const Holding& holding) {
      return holding.resource == resource && std::ranges::find(holding.ids, id) != holding.ids.end();
    });
  };
  std::set<std::uint32_t> groups;
  {
    const std::scoped_lock lock(mutex_);
    groups = left_open_;
    const auto undecided = being_decided();
    std::set<std::uint32_t> not_ours;
    for (const auto& shelf : shelves_) {
      for (const auto& slot : shelf.slots) {
        if (slot.holder == 0) continue;
        // A younger one's pod may be starting: the node is its VM's to open.
        const bool over = slot.holder <= settled && !undecided.contains(slot.holder) &&
                          !listed(shelf.name.text(), slot.device.id);
        (over ? groups : not_ours).insert(slot.device.iommu_group);
      }
    }
    for (const auto& claim : claims_) {
      if (!claim.group) continue;
      const bool over = claim.ticket <= settled && !listed(claim.resource, claim.id);
      (over ? groups : not_ours).insert(*claim.group);
    }
    for (const auto group : not_ours) groups.erase(group);
  }
  std::vector<std::pair<std::uint32_t, std::function<bool()>>> answers;
  answers.reserve(groups.size());
  for (const auto group : groups) answers.emplace_back(group, check_.ask_whether_open(group));
  std::map<std::uint32_t, bool> open;
  for (const auto& [group, answer] : answers) open.emplace(group, answer());
  return open;
}

/// Whether a container had devices before they came to whom they have come to since `asked`.
bool AllocationCore::is_older(const Holding& holding, Ticket asked) const {
  const auto shelf = find_shelf(holding.resource);
  return std::ranges::any_of(holding.ids, [&](const std::string& id) {
    const auto voided = voided_.find(id);
    const auto* const slot = shelf ? find_slot(shelves_[*shelf], id) : nullptr;
    return (voided != voided_.end() && voided->second > asked) || (slot != nullptr && slot->holder > asked);
  });
}

/// Allocates what is held and nobody has, and says whose is held.
std::set<AllocationCore::Ticket> AllocationCore::adopt(std::span<const Holding> held, const Groups& groups,
                                                       Ticket asked) {
  std::set<Ticket> kept;
  for (const auto& holding : held) {
    if (is_older(holding, asked)) continue;
    const auto shelf = find_shelf(holding.resource);
    const Ticket ticket = last_ticket_ + 1;  // for all of a container
    for (const auto& id : holding.ids) {
      if (auto* const slot = shelf ? find_slot(shelves_[*shelf], id) : nullptr; slot != nullptr) {
        if (slot->holder == 0) {
          slot->holder = ticket;
          mark_stale(slot->device.iommu_group);
        }
        kept.insert(slot->holder);
        continue;
      }
      const auto known = std::ranges::find_if(
          claims_, [&](const Claim& one) { return one.resource == holding.resource && one.id == id; });
      if (known != claims_.end()) {
        kept.insert(known->ticket);
        continue;
      }
      Claim claim{.resource = holding.resource, .id = id, .ticket = ticket, .group = {}};
      if (const auto group = groups.find({holding.resource, id}); group != groups.end()) {
        claim.group = group->second;
        mark_stale(group->second);
      }
      claims_.push_back(std::move(claim));
      kept.insert(ticket);
    }
    if (kept.contains(ticket)) last_ticket_ = ticket;
  }
  return kept;
}

void AllocationCore::reconcile(std::span<const Holding> held, const ListTime& time) {
  const auto groups = ask_groups(held);
  const auto asked_open = ask_released(held, time.settled);
  const auto was_found = [&](std::uint32_t group, bool open) {
    const auto answer = asked_open.find(group);
    return answer != asked_open.end() && answer->second == open;
  };
  News news;
  {
    const std::scoped_lock lock(mutex_);
    const auto named = adopt(held, groups, time.asked);
    const auto undecided = being_decided();
    const auto is_lost = [&](Ticket ticket) {
      return ticket != 0 && ticket <= time.settled && !named.contains(ticket) && !undecided.contains(ticket);
    };
    for (const auto& [group, open] : asked_open)
      if (!open) forget_open(group);
    std::map<Ticket, bool> lost;  // whether all groups of it were found closed
    for (const auto& shelf : shelves_) {
      for (const auto& slot : shelf.slots) {
        const auto group = slot.device.iommu_group;
        if (named.contains(slot.holder)) forget_open(group);
        if (!is_lost(slot.holder)) continue;
        auto& closed = lost.emplace(slot.holder, true).first->second;
        closed = closed && was_found(group, false);
        if (was_found(group, true) && left_open_.insert(group).second) mark_stale(group);
      }
    }
    for (const auto& claim : claims_) {
      if (!is_lost(claim.ticket)) continue;
      auto& closed = lost.emplace(claim.ticket, true).first->second;
      closed = closed && (!claim.group || was_found(*claim.group, false));
    }
    for (const auto& [ticket, closed] : lost)
      if (closed) release(ticket);
    std::erase_if(voided_, [&](const auto& one) { return one.second <= time.asked; });
    news = publish();
  }
  tell(news);
}

/// A list that was asked for before the answer does not know of the allocation.
void AllocationCore::renew(Ticket ticket) {
  ++last_ticket_;
  for (auto& shelf : shelves_)
    for (auto& slot : shelf.slots)
      if (slot.holder == ticket) slot.holder = last_ticket_;
}

void AllocationCore::release(Ticket ticket) {
  for (auto& shelf : shelves_) {
    for (auto& slot : shelf.slots) {
      if (slot.holder != ticket) continue;
      slot.holder = 0;
      mark_stale(slot.device.iommu_group);
    }
  }
  std::erase_if(claims_, [&](const Claim& claim) {
    if (claim.ticket != ticket) return false;
    if (claim.group) mark_stale(*claim.group);
    return true;
  });
}

void AllocationCore::forget_open(std::uint32_t group) {
  if (left_open_.erase(group) != 0) mark_stale(group);
}

void AllocationCore::mark_stale(std::uint32_t group) {
  for (auto& shelf : shelves_) {
    shelf.stale = shelf.stale || std::ranges::any_of(shelf.slots, [&](const Slot& slot) {
                    return slot.device.iommu_group == group;
                  });
  }
}

AllocationCore::News AllocationCore::publish() {
  if (snapshot_->resources.size() == shelves_.size() && std::ranges::none_of(shelves_, &Shelf::stale))
    return {};
  for (auto& shelf : shelves_)
    std::erase_if(shelf.slots, [](const Slot& slot) { return slot.gone && slot.holder == 0; });

  const auto held = held_groups(shelves_, claims_);
  auto next = std::make_shared<Snapshot>();
  next->generation = snapshot_->generation + 1;
  bool same = snapshot_->resources.size() == shelves_.size();
  std::vector<bool> to_send(shelves_.size());
  for (std::size_t i = 0; i < shelves_.size(); ++i) {
    const auto old = i < snapshot_->resources.size() ? snapshot_->resources[i] : nullptr;
    if (old != nullptr && !std::exchange(shelves_[i].stale, false)) {
      next->resources.push_back(old);
      continue;
    }
    shelves_[i].stale = false;
    auto listed = list(shelves_[i], held, left_open_);
    to_send[i] = old == nullptr || !looks_the_same(*old, listed);
    const bool unchanged = old != nullptr && *old == listed;
    same = same && unchanged;
    next->resources.push_back(unchanged ? old : std::make_shared<const ListedResource>(std::move(listed)));
  }
  if (same) return {};
  next->awaits_release = std::ranges::any_of(next->resources, [](const auto& resource) {
    return std::ranges::any_of(resource->devices, &ListedDevice::awaits_release);
  });
  snapshot_ = std::move(next);

  News news{.snapshot = true, .wakes = {}};
  for (const auto& watcher : watchers_) {
    auto stream = watcher.stream.lock();
    if (stream == nullptr || !to_send[watcher.shelf]) continue;
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
