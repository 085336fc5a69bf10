// SPDX-License-Identifier: Apache-2.0
#include "kubevirt-plugin/allocation/allocations.h"

#include <algorithm>

#include <fmt/format.h>

namespace ferry::plugin {
namespace {

/// The reason of a scan for a device that it does not have.
struct Loss {
  std::string_view reason;
  bool listed = false;  // also without an allocation
};
using Losses = std::unordered_map<std::string_view, Loss>;  // by name

/// nullptr: the scan gives no reason.
const Loss* loss_of(const ScannedDevice& device, const Losses& losses) {
  auto loss = losses.find(device.id);
  // Kata's IDs are not the host's names of devices.
  if (loss == losses.end()) loss = losses.find(device.host_name());
  return loss == losses.end() ? nullptr : &loss->second;
}

auto* find_entry(auto& resource_devices, std::string_view id) {
  const auto entry =
      std::ranges::lower_bound(resource_devices.entries, id, {},
                               [](const Allocations::Entry& one) { return std::string_view(one.device.id); });
  return entry == resource_devices.entries.end() || entry->device.id != id ? nullptr : &*entry;
}

/// The reason for a device that the scan does not mention.
std::string why_not_had(const std::string& id, std::span<const Resource> scanned) {
  const auto now = std::ranges::find_if(scanned, [&](const Resource& resource) {
    return std::ranges::find(resource.devices, id, &ScannedDevice::id) != resource.devices.end();
  });
  return now == scanned.end() ? "not to be had on the host any more, and still allocated"
                              : fmt::format("{} now, and still allocated as it was", now->name.text());
}

}  // namespace

std::string still_open(std::uint32_t group) {
  return fmt::format("/dev/vfio/{} is open: its previous user has not closed it yet", group);
}

Error being_sanitized(const std::string& id) {
  return {.code = kBeingSanitized, .message = id + ": it is being sanitized after its last use"};
}

Result<std::size_t> Allocations::find_resource(std::string_view resource) const {
  const auto resource_devices = std::ranges::find_if(
      device_lists_, [&](const ResourceDevices& one) { return one.name.text() == resource; });
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

/// Claims become allocations once a resource lists their devices.
void Allocations::take_up_claims(const Groups& groups) {
  std::erase_if(claims_, [&](Claim& claim) {
    if (const auto now = groups.find({claim.resource, claim.id}); now != groups.end())
      claim.group = now->second;
    const auto resource_devices = find_resource(claim.resource);
    auto* const entry = resource_devices ? find_entry(device_lists_[*resource_devices], claim.id) : nullptr;
    if (entry == nullptr) return false;
    if (entry->user == 0) entry->user = claim.ticket;
    return true;
  });
}

const Allocations::Claim* Allocations::claim_on(std::uint32_t group,
                                                const std::set<Ticket>& superseded) const {
  const auto claim = std::ranges::find_if(
      claims_, [&](const Claim& one) { return one.group == group && !superseded.contains(one.ticket); });
  return claim == claims_.end() ? nullptr : &*claim;
}

/// Replaces the devices of a scanned resource; they keep their users.
void Allocations::put(const Resource& resource, Kept& kept) {
  auto at = find_resource(resource.name.text());
  if (!at) {
    device_lists_.push_back(
        {.name = resource.name, .env_prefix = resource.env_prefix, .entries = {}, .places = resource.places});
    at = device_lists_.size() - 1;
  }
  auto& resource_devices = device_lists_[*at];
  resource_devices.env_prefix = resource.env_prefix;
  for (const auto& device : resource.devices) {
    // The mark of an earlier process has the kubelet's ID.
    if (auto mark = used_.extract(device.id)) {
      mark.key() = device.host_name();
      used_.insert(std::move(mark));
    }
    Entry entry{.device = device, .fault = {}};
    // The kubelet counts by resource and ID, so under a new resource the device is free to it. Its pod keeps
    // the device under the resource that it asked for.
    if (const auto before = kept.extract({*at, device.id})) {
      entry.user = before.mapped().user;
      entry.before = before.mapped().before;
      entry.pod = before.mapped().pod;
      entry.named = before.mapped().named;
    }
    resource_devices.entries.push_back(std::move(entry));
  }
}

void Allocations::replace(std::span<const Resource> scanned, std::span<const NotAdvertised> lost,
                          std::span<const NotAdvertised> reassigned, const Groups& groups) {
  Losses losses;
  for (const auto& device : lost) losses.emplace(device.id, Loss{.reason = device.reason, .listed = true});
  for (const auto& device : reassigned) losses.emplace(device.id, Loss{.reason = device.reason});
  Kept kept;
  for (std::size_t i = 0; i < device_lists_.size(); ++i) {
    for (const auto& entry : device_lists_[i].entries) {
      const auto* const loss = loss_of(entry.device, losses);
      if (entry.user != 0 || (loss != nullptr && loss->listed))
        kept.emplace(std::pair(i, entry.device.id), entry);
    }
  }
  std::vector<ResourceDevices> before = std::exchange(device_lists_, {});
  for (const auto& resource_devices : before)
    device_lists_.push_back({.name = resource_devices.name,
                             .env_prefix = resource_devices.env_prefix,
                             .entries = {},
                             .places = resource_devices.places});
  for (const auto& resource : scanned) put(resource, kept);
  for (std::size_t i = 0; i < before.size(); ++i) {
    for (auto& entry : before[i].entries) {
      if (!kept.contains({i, entry.device.id})) continue;
      const auto* const loss = loss_of(entry.device, losses);
      entry.gone = loss == nullptr || !loss->listed;
      entry.device.problem =
          loss == nullptr ? why_not_had(entry.device.id, scanned) : std::string(loss->reason);
      entry.fault.clear();
      device_lists_[i].entries.push_back(std::move(entry));
    }
  }
  for (auto& resource_devices : device_lists_)
    std::ranges::sort(resource_devices.entries, {},
                      [](const Entry& entry) -> const std::string& { return entry.device.id; });
  take_up_claims(groups);
}

Result<Allocations::Grant> Allocations::examine(std::string_view resource,
                                                std::span<const std::vector<std::string>> containers,
                                                std::vector<Entry*>& entries) {
  const auto at = find_resource(resource);
  if (!at) return fail(at.error());
  auto& resource_devices = device_lists_[*at];

  Grant grant{.env_name = env_name(resource_devices.env_prefix, resource_devices.name)};
  for (const auto& ids : containers) {
    auto& asked = grant.containers.emplace_back();
    if (ids.empty()) return fail(Errc::usage, "a container asks for no device");
    for (const auto& id : ids) {
      auto* const entry = find_entry(resource_devices, id);
      if (entry == nullptr) return fail(Errc::not_found, fmt::format("{}: no such device is advertised", id));
      if (std::find(entries.begin(), entries.end(), entry) != entries.end())
        return fail(Errc::usage, fmt::format("{}: asked for twice", id));
      const auto* const order = sanitized(entry->device.host_name());
      const auto state = order == nullptr ? api::SanitizeState::available : order->state;
      // Before the problems: hostd reports one as long as it sanitizes.
      const bool awaited = state == api::SanitizeState::sanitizing || used_since(*entry);
      if (entry->user == 0 && awaited && state != api::SanitizeState::failed)
        return fail(being_sanitized(id));
      if (!entry->device.problem.empty() || !entry->fault.empty()) {
        return fail(Errc::refused,
                    fmt::format("{}: Unhealthy: {}", id,
                                entry->device.problem.empty() ? entry->fault : entry->device.problem));
      }
      if (state == api::SanitizeState::failed)
        return fail(Errc::refused, fmt::format("{}: it could not be sanitized after its last use", id));
      if (pending_.contains(entry->user))
        return fail(Errc::refused, fmt::format("{}: another request for it is not answered yet", id));
      if (entry->user != 0) grant.superseded.insert(entry->user);
      // In use without an allocation: its user has not ended, or hostd has not seen that. The group shows
      // which.
      if (order != nullptr && (entry->user != 0 || state == api::SanitizeState::in_use)) grant.used = id;
      grant.groups.emplace(entry->device.iommu_group, id);
      entries.push_back(entry);
      asked.push_back(entry->device);
    }
  }
  if (entries.empty()) return fail(Errc::usage, "the request is for no container");

  for (const auto* const entry : entries) {
    if (const auto* const claim = claim_on(entry->device.iommu_group, grant.superseded); claim != nullptr) {
      return fail(Errc::refused,
                  fmt::format("{}: its IOMMU group {} is held: {} of {} is allocated", entry->device.id,
                              entry->device.iommu_group, claim->id, claim->resource));
    }
  }
  for (const auto& other : device_lists_) {
    for (const auto& member : other.entries) {
      if (member.user == 0) continue;
      if (grant.superseded.contains(member.user)) {  // an allocation's devices are released together
        grant.groups.emplace(member.device.iommu_group, member.device.id);
        continue;
      }
      const auto stopped = std::ranges::find_if(entries, [&](const Entry* entry) {
        // The same group, or the same device under another resource, whose group may have changed.
        return entry->device.iommu_group == member.device.iommu_group ||
               (&other != &resource_devices && entry->device.id == member.device.id);
      });
      if (stopped == entries.end()) continue;
      return fail(Errc::refused,
                  fmt::format("{}: its IOMMU group {} is held: {} of {} is allocated", (*stopped)->device.id,
                              (*stopped)->device.iommu_group, member.device.id, other.name.text()));
    }
  }
  for (const auto& claim : claims_)
    if (claim.group && grant.superseded.contains(claim.ticket)) grant.groups.emplace(*claim.group, claim.id);

  return grant;
}

Result<Allocations::Grant> Allocations::reserve(std::string_view resource,
                                                std::span<const std::vector<std::string>> containers) {
  std::vector<Entry*> entries;
  auto grant = examine(resource, containers, entries);
  if (!grant) return grant;
  grant->ticket = ++last_ticket_;
  for (auto* const entry : entries) entry->before = std::exchange(entry->user, grant->ticket);
  pending_.insert(grant->ticket);
  return grant;
}

void Allocations::commit(const Grant& grant) {
  pending_.erase(grant.ticket);
  // The kubelet's lists that were requested before this answer do not contain the allocation.
  const Ticket answered = ++last_ticket_;
  for (auto& resource_devices : device_lists_) {
    for (auto& entry : resource_devices.entries) {
      if (entry.user == grant.ticket) {
        entry.user = answered;
        const Ticket former = std::exchange(entry.before, 0);
        // If the previous allocation's pod was never identified, the published list already shows this device
        // as allocated, so the group need not be sent again.
        if (former == 0 || entry.named == former) mark_stale(entry.device.iommu_group);
      } else if (grant.superseded.contains(entry.user)) {
        voided_[entry.device.id] = grant.ticket;
      }
    }
  }
  release(grant.superseded);
  for (const auto& [group, id] : grant.groups) forget_open(group);
}

void Allocations::give_up(const Grant& grant, const Doubts& found) {
  pending_.erase(grant.ticket);
  for (auto& resource_devices : device_lists_) {
    for (auto& entry : resource_devices.entries) {
      if (entry.device.id == found.faulty) {
        entry.fault = found.fault;
        resource_devices.stale = true;
      }
      if (entry.user == grant.ticket) {
        entry.user = std::exchange(entry.before, 0);
        mark_stale(entry.device.iommu_group);  // it may have been listed as allocated
      }
      if (found.over && grant.superseded.contains(entry.user)) voided_[entry.device.id] = grant.ticket;
    }
  }
  if (found.over) {
    release(grant.superseded);
    for (const auto& [group, id] : grant.groups) forget_open(group);
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
    for (const auto& entry : resource_devices.entries)
      if (entry.before != 0) tickets.insert(entry.before);
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
    for (const auto& entry : resource_devices.entries) {
      if (entry.user == 0) continue;
      // A younger one's pod may be starting: the node is its VM's to open.
      const bool over = time.may_release(entry.user) && !undecided.contains(entry.user) &&
                        !listed(resource_devices.name.text(), entry.device.id);
      (over ? groups : not_ours).insert(entry.device.iommu_group);
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
    const auto* const entry = resource_devices ? find_entry(device_lists_[*resource_devices], id) : nullptr;
    return (voided != voided_.end() && voided->second > asked) || (entry != nullptr && entry->user > asked);
  });
}

/// Gives a container's devices of one resource one ticket, since they are released together.
void Allocations::join(const Holding& holding) {
  const auto resource_devices = find_resource(holding.resource);
  if (!resource_devices) return;  // devices of an unknown resource may be shared, so each keeps its own claim
  std::vector<Entry*> entries;
  std::vector<Claim*> claims;
  std::set<Ticket> tickets;
  for (const auto& id : holding.ids) {
    if (auto* const entry = find_entry(device_lists_[*resource_devices], id); entry != nullptr) {
      entries.push_back(entry);
      tickets.insert(entry->user);
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
  for (auto* const entry : entries) {
    if (entry->named == entry->user) entry->named = first;
    entry->user = first;
    mark_stale(entry->device.iommu_group);
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
      if (auto* const entry = resource_devices ? find_entry(device_lists_[*resource_devices], id) : nullptr;
          entry != nullptr) {
        if (entry->user == 0) {
          entry->user = ticket;
          mark_stale(entry->device.iommu_group);
        }
        // Until the pending request is answered, the list names the previous pod.
        const bool names = !holding.pod.empty() && !pending_.contains(entry->user);
        if (names && (entry->named != entry->user || entry->pod != holding.pod)) {
          entry->named = entry->user;
          entry->pod = holding.pod;
          device_lists_[*resource_devices].stale = true;
        }
        kept.insert(entry->user);
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
    for (const auto& entry : resource_devices.entries) {
      const auto group = entry.device.iommu_group;
      if (named.contains(entry.user)) forget_open(group);
      if (!is_lost(entry.user)) continue;
      auto& closed = lost.emplace(entry.user, true).first->second;
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
  std::set<std::uint32_t> groups;
  for (auto& resource_devices : device_lists_) {
    for (auto& entry : resource_devices.entries) {
      if (!tickets.contains(entry.user)) continue;
      entry.user = 0;
      groups.insert(entry.device.iommu_group);
    }
  }
  std::erase_if(claims_, [&](const Claim& claim) {
    if (!tickets.contains(claim.ticket)) return false;
    if (const auto* const order = sanitized(claim.id)) used_[claim.id] = order->count;
    if (claim.group) groups.insert(*claim.group);
    return true;
  });
  // The pod of one device has had the whole group, and a GPU may be listed for KubeVirt and for Kata.
  for (auto& resource_devices : device_lists_) {
    for (const auto& entry : resource_devices.entries) {
      if (!groups.contains(entry.device.iommu_group)) continue;
      resource_devices.stale = true;
      if (const auto* const order = sanitized(entry.device.host_name()))
        used_[entry.device.host_name()] = order->count;
    }
  }
}

const api::SanitizedDevice* Allocations::sanitized(std::string_view host_name) const {
  const auto order = sanitized_.find(host_name);
  return order == sanitized_.end() ? nullptr : &order->second;
}

std::optional<std::uint64_t> Allocations::used_since(const Entry& entry) const {
  const auto used = used_.find(entry.device.host_name());
  if (entry.user != 0 || used == used_.end()) return std::nullopt;
  const auto* const order = sanitized(entry.device.host_name());
  return order != nullptr && order->count == used->second ? std::optional(used->second) : std::nullopt;
}

bool Allocations::gives_sanitized() const {
  return std::ranges::any_of(device_lists_, [&](const ResourceDevices& resource_devices) {
    return std::ranges::any_of(resource_devices.entries, [&](const Entry& entry) {
      return entry.user != 0 && sanitized(entry.device.host_name()) != nullptr;
    });
  });
}

void Allocations::follow(std::span<const api::SanitizedDevice> sanitized) {
  std::map<std::string, api::SanitizedDevice, std::less<>> orders;
  for (const auto& order : sanitized) orders.emplace(order.id, order);
  if (orders == sanitized_) return;
  sanitized_ = std::move(orders);
  for (auto& resource_devices : device_lists_) {
    resource_devices.stale = true;
    for (const auto& entry : resource_devices.entries)
      if (!used_since(entry)) used_.erase(entry.device.host_name());
  }
}

void Allocations::forget_open(std::uint32_t group) {
  if (left_open_.erase(group) != 0) mark_stale(group);
}

void Allocations::mark_stale(std::uint32_t group) {
  for (auto& resource_devices : device_lists_) {
    resource_devices.stale =
        resource_devices.stale || std::ranges::any_of(resource_devices.entries, [&](const Entry& entry) {
          return entry.device.iommu_group == group;
        });
  }
}

void Allocations::node_gone(const std::string& node) {
  for (auto& resource_devices : device_lists_) {
    for (auto& entry : resource_devices.entries) {
      if (!entry.fault.empty() || std::ranges::find(entry.device.nodes, node) == entry.device.nodes.end())
        continue;
      entry.fault = node + " is gone";
      resource_devices.stale = true;
    }
  }
}

std::vector<ListedDevice> Allocations::unlisted() const {
  std::vector<ListedDevice> devices;
  for (const auto& claim : claims_)
    if (claim.group && find_resource(claim.resource))
      devices.push_back({.resource = claim.resource,
                         .id = claim.id,
                         .iommu_group = *claim.group,
                         .allocated = true,
                         .healthy = false,
                         .reason = "still allocated, and not advertised now",
                         .awaits_release = true});
  return devices;
}

std::vector<bool> Allocations::take_stale() {
  std::vector<bool> stale;
  stale.reserve(device_lists_.size());
  for (auto& resource_devices : device_lists_) {
    stale.push_back(std::exchange(resource_devices.stale, false));
    if (stale.back())
      std::erase_if(resource_devices.entries,
                    [](const Entry& entry) { return entry.gone && entry.user == 0; });
  }
  return stale;
}

}  // namespace ferry::plugin
