// SPDX-License-Identifier: Apache-2.0
// Who has what, as values: the devices of the last scan, the reservations that pods have on them, and the
// order in which all that came to be. It asks no host and tells nobody (allocation_core.h does); one thread
// at a time. A device's state in it is the kubelet's business only by device_lists.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/result.h"
#include "kubevirt-plugin/offered_device.h"
#include "kubevirt-plugin/resource_name.h"
#include "kubevirt-plugin/snapshot.h"

namespace ferry {

/// Devices that a pod holds, as pod resources tells it.
struct Holding {
  std::string resource;
  std::vector<std::string> ids;
  std::string pod = {};  ///< "namespace/name"; empty: nobody says
};

/// Why a group whose node is open is given to nobody.
std::string still_open(std::uint32_t group);

class AllocationBook {
 public:
  /// A point in the order of allocations; 0 is before the first.
  using Ticket = std::uint64_t;
  using Groups = std::map<std::pair<std::string, std::string>, std::uint32_t>;  ///< of (resource, ID)

  /// The time of a list of pod resources.
  struct ListTime {
    Ticket asked = 0;  ///< ticket() of before it was asked for
    /// The same of the list that came before it; 0: nothing counts as released yet.
    Ticket settled = 0;
    /// Allocations up to this one do not count as released, whatever the list names.
    Ticket kept = 0;

    /// Whether an allocation that the list does not name may be over.
    bool may_release(Ticket ticket) const { return ticket > kept && ticket <= settled; }
  };

  struct Slot {
    OfferedDevice device;
    Ticket holder = 0;     ///< 0: free
    Ticket before = 0;     ///< who has it for as long as the holder is pending, or again when that fails
    std::string fault;     ///< what the host said against it when it was to be given
    std::string pod = {};  ///< whose it is, by the list in which `named` was the holder
    Ticket named = 0;
    bool gone = false;  ///< held, and not to be had on the host any more: goes when it is released
  };
  struct Shelf {
    ResourceName name;
    EnvPrefix env_prefix = EnvPrefix::pci_resource;
    std::vector<Slot> slots;  ///< in order of ID, by which they are found
    bool places = false;      ///< then it has no slots
    bool stale = true;        ///< something in it has changed
  };
  /// Held, and on no shelf under this name.
  struct Claim {
    std::string resource;
    std::string id;
    Ticket ticket = 0;
    std::optional<std::uint32_t> group;  ///< absent: not known on this host
  };

  /// What is reserved for a request until commit() or give_up().
  struct Grant {
    Ticket ticket = 0;
    std::string env_name;
    std::vector<std::vector<OfferedDevice>> containers;
    std::set<Ticket> superseded;
    std::map<std::uint32_t, std::string> groups;  ///< which must not be open, each with a device of it
  };
  /// What the host said against a grant.
  struct Doubts {
    std::string faulty;                         ///< is not what was offered any more; empty: all are
    std::string fault;                          ///< but this
    std::map<std::uint32_t, std::string> open;  ///< of the grant's groups, each with what to say of it
  };

  /// Only grows; in the order in which they first appeared.
  const std::vector<Shelf>& shelves() const { return shelves_; }
  const std::vector<Claim>& claims() const { return claims_; }
  /// Groups that are open, or do not say, and the kubelet knows of no pod that has them; each with what to
  /// say of it.
  const std::map<std::uint32_t, std::string>& left_open() const { return left_open_; }
  /// Errc::not_found: no such resource.
  Result<std::size_t> find_shelf(std::string_view resource) const;
  /// What claims hold that have a group and a resource that is offered.
  std::vector<UnlistedDevice> unlisted() const;
  /// The last allocation so far.
  Ticket ticket() const { return last_ticket_; }

  /// Which shelves something has changed on since the last call. What was only kept until its release leaves
  /// them.
  std::vector<bool> take_stale();

  /// Resources whose IDs were ours, and numbers, before this process.
  void came_before(std::set<std::string> former) { former_ = std::move(former); }
  /// Resources whose IDs are numbers (kata_key()).
  std::set<std::string> numbered() const;

  /// As AllocationCore::replace(); `groups` are those of what is claimed.
  void replace(std::span<const Resource> scanned, std::span<const NotOffered> lost,
               std::span<const NotOffered> reassigned, const Groups& groups);

  /// As AllocationCore::node_gone().
  void node_gone(const std::string& node);

  /// As AllocationCore::allocate(), up to what the host has to say.
  Result<Grant> reserve(std::string_view resource, std::span<const std::vector<std::string>> containers);
  void commit(const Grant& grant);
  void give_up(const Grant& grant, const Doubts& found);

  /// Groups of which it matters whether they are open, when these are what is held.
  std::set<std::uint32_t> may_be_released(std::span<const Holding> held, const ListTime& time) const;
  /// As AllocationCore::reconcile(), with what was learnt of groups: what was asked about, and whether it is
  /// open.
  void reconcile(std::span<const Holding> held, const Groups& groups,
                 const std::map<std::uint32_t, bool>& asked_open, const ListTime& time);

 private:
  struct Request {  // good for as long as nothing changes
    std::size_t shelf = 0;
    std::vector<std::vector<Slot*>> containers;
    std::set<Ticket> superseded;
    std::map<std::uint32_t, std::string> groups;  // as Grant's
  };

  /// By shelf and ID: of what was listed, and not in the scan.
  using Kept = std::map<std::pair<std::size_t, std::string>, Slot>;

  void put(const Resource& resource, Kept& kept);
  Result<Request> examine(std::string_view resource, std::span<const std::vector<std::string>> containers);
  void take_up_claims(const Groups& groups);
  std::set<Ticket> adopt(std::span<const Holding> held, const Groups& groups, Ticket asked);
  void join(const Holding& holding);
  bool is_older(const Holding& holding, Ticket asked) const;
  std::set<Ticket> being_decided() const;
  void forget_open(std::uint32_t group);
  /// nullptr: none but those that end with the request.
  const Claim* claim_on(std::uint32_t group, const std::set<Ticket>& superseded) const;
  void release(const std::set<Ticket>& tickets);
  void mark_stale(std::uint32_t group);

  std::set<std::string> former_;
  std::vector<Shelf> shelves_;
  std::vector<Claim> claims_;
  std::set<Ticket> pending_;  // reserved while the host is being asked
  std::map<std::uint32_t, std::string> left_open_;
  std::map<std::string, Ticket> voided_;  // by ID: lost its allocation to the one of that ticket
  Ticket last_ticket_ = 0;
};

}  // namespace ferry
