// SPDX-License-Identifier: Apache-2.0
// The allocations as values: the devices of the last scan, the reservations that pods have on them, and their
// order. It neither asks the host nor calls listeners (allocation_core.h does); one thread at a time.
// next_lists() decides how the kubelet sees a device's state.
//
// hostd sanitizes some devices after each use (api::SanitizedDevice). A release marks such devices of the
// IOMMU group as used. A mark lasts until hostd's count has changed, and no request gets the device before
// that.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "api/host_status.h"
#include "common/result.h"
#include "kubevirt-plugin/allocation/snapshot.h"
#include "kubevirt-plugin/discovery/resource_name.h"
#include "kubevirt-plugin/discovery/scanned_device.h"

namespace ferry::plugin {

/// Devices that a pod has, according to pod resources.
struct Holding {
  std::string resource;
  std::vector<std::string> ids;
  std::string pod = {};  ///< "namespace/name"; empty: not known
};

/// The reason why a group with an open node is not allocated.
std::string still_open(std::uint32_t group);

/// The code of a refusal that lasts only until hostd has sanitized the device.
inline const std::error_code kBeingSanitized = std::make_error_code(std::errc::operation_in_progress);
Error being_sanitized(const std::string& id);

class Allocations {
 public:
  /// A point in the order of allocations; 0 is before the first.
  using Ticket = std::uint64_t;
  using Groups = std::map<std::pair<std::string, std::string>, std::uint32_t>;  ///< of (resource, ID)

  /// The time of a list of pod resources.
  struct ListTime {
    Ticket asked = 0;  ///< ticket() before the question
    /// `asked` of the previous list; 0: nothing counts as released yet.
    Ticket settled = 0;
    /// Allocations up to this one do not count as released, whatever the list names.
    Ticket kept = 0;

    /// True if an allocation that the list does not name may be over.
    bool may_release(Ticket ticket) const { return ticket > kept && ticket <= settled; }
  };

  struct Entry {
    ScannedDevice device;
    Ticket user = 0;       ///< 0: free
    Ticket before = 0;     ///< the allocation before a pending one, which returns if that fails
    std::string fault;     ///< the host's objection at the last attempt to allocate it
    std::string pod = {};  ///< the pod's name, by the list in which `named` was the user
    Ticket named = 0;
    bool gone = false;  ///< no longer on the host and still allocated: leaves with its release
  };
  struct ResourceDevices {
    ResourceName name;
    EnvPrefix env_prefix = EnvPrefix::pci_resource;
    std::vector<Entry> entries;  ///< sorted by ID, which find_entry() relies on
    bool places = false;         ///< a resource of places, which has no entries
    bool stale = true;           ///< a device of it has changed
  };
  /// An allocation that no resource lists under this name and ID.
  struct Claim {
    std::string resource;
    std::string id;
    Ticket ticket = 0;
    std::optional<std::uint32_t> group;  ///< absent: not known on this host
  };

  /// The reservation for a request, until commit() or give_up().
  struct Grant {
    Ticket ticket = 0;
    std::string env_name;
    std::vector<std::vector<ScannedDevice>> containers = {};
    std::set<Ticket> superseded = {};
    std::map<std::uint32_t, std::string> groups = {};  ///< these must not be open; each with a device of it
    /// A device that its earlier user gives up only now, and that hostd must sanitize first. Empty: none.
    std::string used = {};
  };
  /// The host's objections to a grant.
  struct Doubts {
    std::string faulty;  ///< the ID of a device that no longer matches the scan; empty: all match
    std::string fault;   ///< the reason for that
    std::map<std::uint32_t, std::string> open;  ///< the grant's open groups, each with its message
    bool over = false;  ///< the superseded allocations have ended, and Grant::used must be sanitized
  };

  /// The vector only grows; resources are in order of first appearance.
  const std::vector<ResourceDevices>& device_lists() const { return device_lists_; }
  const std::vector<Claim>& claims() const { return claims_; }
  /// Groups that are open or do not answer although the kubelet knows no pod with them, each with its
  /// message.
  const std::map<std::uint32_t, std::string>& left_open() const { return left_open_; }
  /// Errc::not_found: no such resource.
  Result<std::size_t> find_resource(std::string_view resource) const;
  /// The claimed devices that have a known group and an advertised resource.
  std::vector<ListedDevice> unlisted() const;
  /// The number of the last allocation.
  Ticket ticket() const { return last_ticket_; }

  /// True for each resource that has changed since the last call. Removes devices that were kept only until
  /// their release.
  std::vector<bool> take_stale();

  /// Resources of an earlier plugin process whose IDs were numbers (kata_key()).
  void came_before(std::set<std::string> former) { former_ = std::move(former); }
  /// Resources whose IDs are numbers (kata_key()).
  std::set<std::string> numbered() const;

  /// See AllocationCore::replace(). `groups`: those of the claims.
  void replace(std::span<const Resource> scanned, std::span<const NotAdvertised> lost,
               std::span<const NotAdvertised> reassigned, const Groups& groups);

  using UseCounts = std::map<std::string, std::uint64_t>;  ///< hostd's count at the release, by name
  /// The marks of an earlier plugin process, by ID.
  void remember_used(UseCounts used) { used_ = std::move(used); }
  /// Takes hostd's orders. A mark ends if its device has another count there, or is missing.
  void follow(std::span<const api::SanitizedDevice> sanitized);
  /// hostd's count when the device was released. Absent: it is allocated, or has been sanitized since.
  std::optional<std::uint64_t> used_since(const Entry& entry) const;
  /// A listed device is allocated that hostd sanitizes.
  bool gives_sanitized() const;

  /// See AllocationCore::node_gone().
  void node_gone(const std::string& node);

  /// See AllocationCore::allocate(), for the part before the host is asked.
  Result<Grant> reserve(std::string_view resource, std::span<const std::vector<std::string>> containers);
  void commit(const Grant& grant);
  void give_up(const Grant& grant, const Doubts& found);

  /// The groups that may have been released if pods hold `held`: whether they are open must be asked.
  std::set<std::uint32_t> may_be_released(std::span<const Holding> held, const ListTime& time) const;
  /// See AllocationCore::reconcile(). `asked_open`: each group that was asked about, and whether it is open.
  void reconcile(std::span<const Holding> held, const Groups& groups,
                 const std::map<std::uint32_t, bool>& asked_open, const ListTime& time);

 private:
  /// Listed devices that the new scan does not have, by resource and ID.
  using Kept = std::map<std::pair<std::size_t, std::string>, Entry>;

  void put(const Resource& resource, Kept& kept);
  /// The grant without a ticket. `entries` gets the asked devices.
  Result<Grant> examine(std::string_view resource, std::span<const std::vector<std::string>> containers,
                        std::vector<Entry*>& entries);
  void take_up_claims(const Groups& groups);
  std::set<Ticket> adopt(std::span<const Holding> held, const Groups& groups, Ticket asked);
  void join(const Holding& holding);
  bool is_older(const Holding& holding, Ticket asked) const;
  std::set<Ticket> being_decided() const;
  void forget_open(std::uint32_t group);
  /// nullptr: no claim, except those that end with the request.
  const Claim* claim_on(std::uint32_t group, const std::set<Ticket>& superseded) const;
  void release(const std::set<Ticket>& tickets);
  void mark_stale(std::uint32_t group);
  /// nullptr: hostd does not sanitize it.
  const api::SanitizedDevice* sanitized(std::string_view host_name) const;

  std::set<std::string> former_;
  std::vector<ResourceDevices> device_lists_;
  std::vector<Claim> claims_;
  std::set<Ticket> pending_;  // reservations while the host is being asked
  std::map<std::uint32_t, std::string> left_open_;
  std::map<std::string, api::SanitizedDevice, std::less<>> sanitized_;  // by the name in sysfs
  UseCounts used_;                        // by the name in sysfs; kept if a device is not listed
  std::map<std::string, Ticket> voided_;  // by ID: the ticket that made the earlier allocation void
  Ticket last_ticket_ = 0;
};

}  // namespace ferry::plugin
