// SPDX-License-Identifier: Apache-2.0
#include "kubevirt-plugin/allocation/allocations.h"

#include <algorithm>

#include <fmt/format.h>

namespace ferry::plugin {
namespace {

/// Reasons of a scan for devices that it does not have.
class Losses {
 public:
  struct Loss {
    std::string_view reason;
    bool listed = false;  // also without an allocation
  };

  /// Both must outlive this object.
  Losses(std::span<const NotAdvertised> lost, std::span<const NotAdvertised> reassigned) {
    for (const auto& device : lost)
      by_name_.emplace(device.id, Loss{.reason = device.reason, .listed = true});
    for (const auto& device : reassigned) by_name_.emplace(device.id, Loss{.reason = device.reason});
  }

  /// nullptr: the scan gives no reason.
  const Loss* of(const AdvertisedDevice& device) const {
    auto loss = by_name_.find(device.id);
    // Kata's IDs are not the host's names of devices.
    if (loss == by_name_.end()) loss = by_name_.find(device.host_name());
    return loss == by_name_.end() ? nullptr : &loss->second;
  }

 private:
  std::unordered_map<std::string_view, Loss> by_name_;
};

auto* find_slot(auto& resource_devices, std::string_view id) {
  const auto slot =
      std::ranges::lower_bound(resource_devices.slots, id, {},
                               [](const Allocations::Slot& one) { return std::string_view(one.device.id); });
  return slot == resource_devices.slots.end() || slot->device.id != id ? nullptr : &*slot;
}

/// The reason for a device that the scan does not mention.
std::string why_not_had(const std::string& id, std::span<const Resource> scanned) {
  const auto now = std::ranges::find_if(scanned, [&](const Resource& resource) {
    return std::ranges::find(resource.devices, id, &AdvertisedDevice::id) != resource.devices.end();
  });
  return now == scanned.end() ? "not to be had on the host any more, and still allocated"
                              : fmt::format("{} now, and still allocated as it was", now->name.text());
}

}  // namespace

std::string still_open(std::uint32_t group) {
  return fmt::format("/dev/vfio/{} is open: who had it before has not let go yet", group);
}

Result<std::size_t> Allocations::find_resource(std::string_view resource) const {
  const auto resource_devices =
      std::find_if(device_lists_.begin(), device_lists_.end(),
                   [&](const ResourceDevices& one) { return one.name.text() == resource; });
  if (resource_devices == device_lists_.end())
    return fail(Errc::not_found, fmt::format("no resource {} is advertised", resource));
  return static_cast<std::size_t>(resource_devices - device_lists_.begin());
}

std::set<std::string> Allocations::numbered() const {
  std::set<std::string> numbered = former_;
  for (const auto& resource_devices : device_lists_)
    if (resource_devices.env_prefix == EnvPrefix::none) numbered.insert(resource_devices.name.text());
  return numbered;
}

/// Claims become allocations once a shelf has their devices.
void Allocations::take_up_claims(const Groups& groups) {
  std::erase_if(claims_, [&](Claim& claim) {
    if (const auto now = groups.find({claim.resource, claim.id}); now != groups.end())
      claim.group = now->second;
    const auto resource_devices = find_resource(claim.resource);
    auto* const slot = resource_devices ? find_slot(device_lists_[*resource_devices], claim.id) : nullptr;
    if (slot == nullptr) return false;
    if (slot->user == 0) slot->user = claim.ticket;
    return true;
  });
}

const Allocations::Claim* Allocations::claim_on(std::uint32_t group,
                                                const std::set<Ticket>& superseded) const {
  const auto claim = std::ranges::find_if(
      claims_, [&](const Claim& one) { return one.group == group && !superseded.contains(one.ticket); });
  return claim == claims_.end() ? nullptr : &*claim;
}

/// Puts a scanned resource on its shelf; devices keep the holders that they had there.
void Allocations::put(const Resource& resource, Kept& kept) {
  auto at = find_resource(resource.name.text());
  if (!at) {
    device_lists_.push_back(
        {.name = resource.name, .env_prefix = resource.env_prefix, .slots = {}, .places = resource.places});
    at = device_lists_.size() - 1;
  }
  auto& resource_devices = device_lists_[*at];
  resource_devices.env_prefix = resource.env_prefix;
  for (const auto& device : resource.devices) {
    Slot slot{.device = device, .fault = {}};
    // The kubelet counts by resource and ID, so under a new resource the device is free to it. Its pod keeps
    // the device under the resource that it asked for.
    if (const auto before = kept.extract({*at, device.id})) {
      slot.user = before.mapped().user;
      slot.before = before.mapped().before;
      slot.pod = before.mapped().pod;
      slot.named = before.mapped().named;
    }
    resource_devices.slots.push_back(std::move(slot));
  }
}

void Allocations::replace(std::span<const Resource> scanned, std::span<const NotAdvertised> lost,
                          std::span<const NotAdvertised> reassigned, const Groups& groups) {
  const Losses losses(lost, reassigned);
  Kept kept;
  for (std::size_t i = 0; i < device_lists_.size(); ++i) {
    for (const auto& slot : device_lists_[i].slots) {
      const auto* const loss = losses.of(slot.device);
      if (slot.user != 0 || (loss != nullptr && loss->listed))
        kept.emplace(std::pair(i, slot.device.id), slot);
    }
  }
  std::vector<ResourceDevices> before = std::exchange(device_lists_, {});
  for (const auto& resource_devices : before)
    device_lists_.push_back({.name = resource_devices.name,
                             .env_prefix = resource_devices.env_prefix,
                             .slots = {},
                             .places = resource_devices.places});
  for (const auto& resource : scanned) put(resource, kept);
  for (std::size_t i = 0; i < before.size(); ++i) {
    for (auto& slot : before[i].slots) {
      if (!kept.contains({i, slot.device.id})) continue;
      const auto* const loss = losses.of(slot.device);
      slot.gone = loss == nullptr || !loss->listed;
      slot.device.problem =
          loss == nullptr ? why_not_had(slot.device.id, scanned) : std::string(loss->reason);
      slot.fault.clear();
      device_lists_[i].slots.push_back(std::move(slot));
    }
  }
  for (auto& resource_devices : device_lists_)
    std::ranges::sort(resource_devices.slots, {},
                      [](const Slot& slot) -> const std::string& { return slot.device.id; });
  take_up_claims(groups);
}

Result<Allocations::Request> Allocations::examine(std::string_view resource,
                                                  std::span<const std::vector<std::string>> containers) {
  const auto at = find_resource(resource);
  if (!at) return fail(at.error());
  auto& resource_devices = device_lists_[*at];

  Request request{.resource_devices = *at, .containers = {}, .superseded = {}, .groups = {}};
  std::vector<Slot*> slots;
  for (const auto& ids : containers) {
    auto& asked = request.containers.emplace_back();
    if (ids.empty()) return fail(Errc::usage, "a container asks for no device");
    for (const auto& id : ids) {
      auto* const slot = find_slot(resource_devices, id);
      if (slot == nullptr) return fail(Errc::not_found, fmt::format("{}: no such device is advertised", id));
      if (std::find(slots.begin(), slots.end(), slot) != slots.end())
        return fail(Errc::usage, fmt::format("{}: asked for twice", id));
      if (!slot->device.problem.empty() || !slot->fault.empty()) {
        return fail(Errc::refused,
                    fmt::format("{}: Unhealthy: {}", id,
                                slot->device.problem.empty() ? slot->fault : slot->device.problem));
      }
      if (pending_.contains(slot->user))
        return fail(Errc::refused, fmt::format("{}: another request for it is not answered yet", id));
      if (slot->user != 0) request.superseded.insert(slot->user);
      request.groups.emplace(slot->device.iommu_group, id);
      slots.push_back(slot);
      asked.push_back(slot);
    }
  }
  if (slots.empty()) return fail(Errc::usage, "the request is for no container");

  for (const auto* const slot : slots) {
    if (const auto* const claim = claim_on(slot->device.iommu_group, request.superseded); claim != nullptr) {
      return fail(Errc::refused,
                  fmt::format("{}: its IOMMU group {} is held: {} of {} is allocated", slot->device.id,
                              slot->device.iommu_group, claim->id, claim->resource));
    }
  }
  for (const auto& other : device_lists_) {
    for (const auto& member : other.slots) {
      if (member.user == 0) continue;
      if (request.superseded.contains(member.user)) {  // an allocation's devices are released together
        request.groups.emplace(member.device.iommu_group, member.device.id);
        continue;
      }
      const auto stopped = std::ranges::find_if(slots, [&](const Slot* slot) {
        // The same group, or the same device under another resource, whose group may have changed.
        return slot->device.iommu_group == member.device.iommu_group ||
               (&other != &resource_devices && slot->device.id == member.device.id);
      });
      if (stopped == slots.end()) continue;
      return fail(Errc::refused,
                  fmt::format("{}: its IOMMU group {} is held: {} of {} is allocated", (*stopped)->device.id,
                              (*stopped)->device.iommu_group, member.device.id, other.name.text()));
    }
  }
  for (const auto& claim : claims_)
    if (claim.group && request.superseded.contains(claim.ticket))
      request.groups.emplace(*claim.group, claim.id);

  return request;
}

Result<Allocations::Grant> Allocations::reserve(std::string_view resource,
                                                std::span<const std::vector<std::string>> containers) {
  auto request = examine(resource, containers);
  if (!request) return fail(std::move(request).error());
  const auto& resource_devices = device_lists_[request->resource_devices];
  Grant grant{.ticket = ++last_ticket_,
              .env_name = env_name(resource_devices.env_prefix, resource_devices.name),
              .containers = {},
              .superseded = std::move(request->superseded),
              .groups = std::move(request->groups)};
  for (const auto& slots : request->containers) {
    auto& devices = grant.containers.emplace_back();
    for (auto* const slot : slots) {
      slot->before = std::exchange(slot->user, grant.ticket);
      devices.push_back(slot->device);
    }
  }
  pending_.insert(grant.ticket);
  return grant;
}

void Allocations::commit(const Grant& grant) {
  pending_.erase(grant.ticket);
  // The kubelet's lists that were requested before this answer do not contain the allocation.
  const Ticket answered = ++last_ticket_;
  for (auto& resource_devices : device_lists_) {
    for (auto& slot : resource_devices.slots) {
      if (slot.user == grant.ticket) {
        slot.user = answered;
        const Ticket former = std::exchange(slot.before, 0);
        // If the previous allocation's pod was never identified, the published list already shows this device
        // as allocated, so the group need not be sent again.
        if (former == 0 || slot.named == former) mark_stale(slot.device.iommu_group);
      } else if (grant.superseded.contains(slot.user)) {
        voided_[slot.device.id] = grant.ticket;
      }
    }
  }
  release(grant.superseded);
  for (const auto& [group, id] : grant.groups) forget_open(group);
}

void Allocations::give_up(const Grant& grant, const Doubts& found) {
  pending_.erase(grant.ticket);
  for (auto& resource_devices : device_lists_) {
    for (auto& slot : resource_devices.slots) {
      if (slot.device.id == found.faulty) {
        slot.fault = found.fault;
        resource_devices.stale = true;
      }
      if (slot.user != grant.ticket) continue;
      slot.user = std::exchange(slot.before, 0);
      mark_stale(slot.device.iommu_group);  // it may have been listed as allocated
    }
  }
  for (const auto& [group, why] : found.open) {
    left_open_.insert_or_assign(group, why);
    mark_stale(group);
  }
}

/// Pending allocations, and the allocations that they would replace.
std::set<Allocations::Ticket> Allocations::being_decided() const {
  std::set<Ticket> tickets = pending_;
  for (const auto& resource_devices : device_lists_)
    for (const auto& slot : resource_devices.slots)
      if (slot.before != 0) tickets.insert(slot.before);
  return tickets;
}

std::set<std::uint32_t> Allocations::may_be_released(std::span<const Holding> held,
                                                     const ListTime& time) const {
  const auto listed = [&](std::string_view resource, const std::string& id) {
    return std::ranges::any_of(held, [&](const Holding& holding) {
      return holding.resource == resource && std::ranges::find(holding.ids, id) != holding.ids.end();
    });
  };
  std::set<std::uint32_t> groups;
  for (const auto& [group, why] : left_open_) groups.insert(group);
  const auto undecided = being_decided();
  std::set<std::uint32_t> not_ours;
  for (const auto& resource_devices : device_lists_) {
    for (const auto& slot : resource_devices.slots) {
      if (slot.user == 0) continue;
      // A younger one's pod may be starting: the node is its VM's to open.
      const bool over = time.may_release(slot.user) && !undecided.contains(slot.user) &&
                        !listed(resource_devices.name.text(), slot.device.id);
      (over ? groups : not_ours).insert(slot.device.iommu_group);
    }
  }
  for (const auto& claim : claims_) {
    if (!claim.group) continue;
    const bool over = time.may_release(claim.ticket) && !listed(claim.resource, claim.id);
    (over ? groups : not_ours).insert(*claim.group);
  }
  for (const auto group : not_ours) groups.erase(group);
  return groups;
}

/// True if a device of this container has been allocated again since the list was asked for.
bool Allocations::is_older(const Holding& holding, Ticket asked) const {
  const auto resource_devices = find_resource(holding.resource);
  return std::ranges::any_of(holding.ids, [&](const std::string& id) {
    const auto voided = voided_.find(id);
    const auto* const slot = resource_devices ? find_slot(device_lists_[*resource_devices], id) : nullptr;
    return (voided != voided_.end() && voided->second > asked) || (slot != nullptr && slot->user > asked);
  });
}

/// Gives a container's devices of one resource one ticket, since they are released together.
void Allocations::join(const Holding& holding) {
  const auto resource_devices = find_resource(holding.resource);
  if (!resource_devices) return;  // devices of an unknown resource may be shared, so each keeps its own claim
  std::vector<Slot*> slots;
  std::vector<Claim*> claims;
  std::set<Ticket> tickets;
  for (const auto& id : holding.ids) {
    if (auto* const slot = find_slot(device_lists_[*resource_devices], id); slot != nullptr) {
      slots.push_back(slot);
      tickets.insert(slot->user);
    }
    for (auto& claim : claims_) {
      if (claim.resource != holding.resource || claim.id != id) continue;
      claims.push_back(&claim);
      tickets.insert(claim.ticket);
    }
  }
  if (tickets.size() < 2) return;
  const auto undecided = being_decided();
  if (std::ranges::any_of(tickets, [&](Ticket one) { return undecided.contains(one); })) return;
  const Ticket first = *tickets.begin();
  for (auto* const slot : slots) {
    if (slot->named == slot->user) slot->named = first;
    slot->user = first;
    mark_stale(slot->device.iommu_group);
  }
  for (auto* const claim : claims) claim->ticket = first;
}

/// Allocates listed devices without an allocation and notes their pods. Returns the confirmed tickets.
std::set<Allocations::Ticket> Allocations::adopt(std::span<const Holding> held, const Groups& groups,
                                                 Ticket asked) {
  std::set<Ticket> kept;
  for (const auto& holding : held) {
    if (is_older(holding, asked)) continue;
    const auto resource_devices = find_resource(holding.resource);
    const Ticket ticket = last_ticket_ + 1;  // one ticket for all devices of a container
    for (const auto& id : holding.ids) {
      if (auto* const slot = resource_devices ? find_slot(device_lists_[*resource_devices], id) : nullptr;
          slot != nullptr) {
        if (slot->user == 0) {
          slot->user = ticket;
          mark_stale(slot->device.iommu_group);
        }
        // Until the pending request is answered, the list names the previous pod.
        const bool names = !holding.pod.empty() && !pending_.contains(slot->user);
        if (names && (slot->named != slot->user || slot->pod != holding.pod)) {
          slot->named = slot->user;
          slot->pod = holding.pod;
          device_lists_[*resource_devices].stale = true;
        }
        kept.insert(slot->user);
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
    join(holding);
  }
  return kept;
}

void Allocations::reconcile(std::span<const Holding> held, const Groups& groups,
                            const std::map<std::uint32_t, bool>& asked_open, const ListTime& time) {
  const auto was_found = [&](std::uint32_t group, bool open) {
    const auto answer = asked_open.find(group);
    return answer != asked_open.end() && answer->second == open;
  };
  const auto named = adopt(held, groups, time.asked);
  const auto undecided = being_decided();
  const auto is_lost = [&](Ticket ticket) {
    return ticket != 0 && time.may_release(ticket) && !named.contains(ticket) && !undecided.contains(ticket);
  };
  for (const auto& [group, open] : asked_open)
    if (!open) forget_open(group);
  std::map<Ticket, bool> lost;  // whether all groups of it were found closed
  for (const auto& resource_devices : device_lists_) {
    for (const auto& slot : resource_devices.slots) {
      const auto group = slot.device.iommu_group;
      if (named.contains(slot.user)) forget_open(group);
      if (!is_lost(slot.user)) continue;
      auto& closed = lost.emplace(slot.user, true).first->second;
      closed = closed && was_found(group, false);
      if (was_found(group, true)) {
        left_open_.insert_or_assign(group, still_open(group));
        mark_stale(group);
      }
    }
  }
  for (const auto& claim : claims_) {
    if (!is_lost(claim.ticket)) continue;
    auto& closed = lost.emplace(claim.ticket, true).first->second;
    closed = closed && (!claim.group || was_found(*claim.group, false));
  }
  std::set<Ticket> over;
  for (const auto& [ticket, closed] : lost)
    if (closed) over.insert(ticket);
  release(over);
  std::erase_if(voided_, [&](const auto& one) { return one.second <= time.asked; });
}

void Allocations::release(const std::set<Ticket>& tickets) {
  if (tickets.empty()) return;
  for (auto& resource_devices : device_lists_) {
    for (auto& slot : resource_devices.slots) {
      if (!tickets.contains(slot.user)) continue;
      slot.user = 0;
      mark_stale(slot.device.iommu_group);
    }
  }
  std::erase_if(claims_, [&](const Claim& claim) {
    if (!tickets.contains(claim.ticket)) return false;
    if (claim.group) mark_stale(*claim.group);
    return true;
  });
}

void Allocations::forget_open(std::uint32_t group) {
  if (left_open_.erase(group) != 0) mark_stale(group);
}

void Allocations::mark_stale(std::uint32_t group) {
  for (auto& resource_devices : device_lists_) {
    resource_devices.stale =
        resource_devices.stale || std::ranges::any_of(resource_devices.slots, [&](const Slot& slot) {
          return slot.device.iommu_group == group;
        });
  }
}

void Allocations::node_gone(const std::string& node) {
  for (auto& resource_devices : device_lists_) {
    for (auto& slot : resource_devices.slots) {
      if (!slot.fault.empty() || std::ranges::find(slot.device.nodes, node) == slot.device.nodes.end())
        continue;
      slot.fault = node + " is gone";
      resource_devices.stale = true;
    }
  }
}

std::vector<UnlistedDevice> Allocations::unlisted() const {
  std::vector<UnlistedDevice> devices;
  for (const auto& claim : claims_)
    if (claim.group && find_resource(claim.resource))
      devices.push_back({.resource = claim.resource, .id = claim.id, .iommu_group = *claim.group});
  return devices;
}

std::vector<bool> Allocations::take_stale() {
  std::vector<bool> stale;
  stale.reserve(device_lists_.size());
  for (auto& resource_devices : device_lists_) {
    stale.push_back(std::exchange(resource_devices.stale, false));
    if (stale.back())
      std::erase_if(resource_devices.slots, [](const Slot& slot) { return slot.gone && slot.user == 0; });
  }
  return stale;
}

}  // namespace ferry::plugin
