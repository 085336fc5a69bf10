// SPDX-License-Identifier: Apache-2.0
// Who has what: the devices of the last scan, the reservations that pods have on them, and what the kubelet
// is told. Knows neither gRPC nor threads; every call may come from any thread and none waits for another's
// host access.
//
// The IOMMU group is the unit. From the moment that a device is allocated, the group's other devices are
// Unhealthy in every list, whatever their resource, and refused to others. The kubelet never says that a
// device came free: that is learnt from pod resources (reconcile()), or from the kubelet giving the same
// device out again.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "kubevirt-plugin/device_stream.h"
#include "kubevirt-plugin/host_check.h"
#include "kubevirt-plugin/offered_device.h"
#include "kubevirt-plugin/snapshot.h"

namespace ferry {

/// What one container gets.
struct Allocation {
  std::string env_name;
  std::string env_value;           ///< the asked devices' IDs, in the order asked, joined by ","
  std::vector<std::string> nodes;  ///< absolute, each once
};

/// Devices that a pod holds, as pod resources tells it.
struct Holding {
  std::string resource;
  std::vector<std::string> ids;
};

class AllocationCore {
 public:
  /// A point in the order of allocations; 0 is before the first.
  using Ticket = std::uint64_t;

  /// Called from the thread that caused it, under no lock. It may come late: look again, do not count.
  struct Listener {
    std::function<void()> changed;  ///< there is a new snapshot
    std::function<void()> doubted;  ///< the host contradicted the scan: time for another
  };

  /// `check` must outlive this.
  explicit AllocationCore(const HostCheck& check, Listener listener = {});

  /// A new scan. IDs are unique over all resources. A device that is allocated and not in the scan stays
  /// listed, Unhealthy, until it is released; a resource once named stays, if need be without devices. What
  /// allocate() found wrong before is forgotten.
  void replace(std::span<const Resource> scanned);

  std::shared_ptr<const Snapshot> snapshot() const;

  /// A stream of one resource's lists that begins with the present one. `wake` is called, as a Listener is,
  /// whenever there may be something to take. Errc::not_found when no such resource is offered.
  Result<std::shared_ptr<DeviceStream>> watch(std::string_view resource, std::function<void()> wake);

  /// Gives the devices of one request, one list of IDs for each of its containers: all of them or none. The
  /// kubelet knows when a device is free: asked for one that is allocated, its earlier allocation is void as
  /// a whole, since a container's devices come free together.
  ///
  /// Errors name the ID and the reason. Errc::not_found: no such resource or device. Errc::usage: nothing
  /// asked for, or one ID twice. Errc::refused: Unhealthy, or its group is held. HostCheck's error: it is not
  /// what was offered any more; it is listed Unhealthy from then on.
  Result<std::vector<Allocation>> allocate(std::string_view resource,
                                           std::span<const std::vector<std::string>> containers);

  /// Which devices a container had best get (preferred_allocation.h). Errc::not_found: no such resource.
  Result<std::vector<std::string>> prefer(std::string_view resource, std::span<const std::string> available,
                                          std::span<const std::string> must_include, int size) const;

  /// The last allocation so far.
  Ticket ticket() const;

  /// Makes allocations what the kubelet says is held: those up to `settled` of which it names no device are
  /// released; devices that it names and nobody has are taken to be allocated. The kubelet lists a pod a
  /// little after its Allocate: `settled` is a ticket() of before the list that came before this one.
  void reconcile(std::span<const Holding> held, Ticket settled);

 private:
  struct Slot {
    OfferedDevice device;
    Ticket holder = 0;  // 0: free
    std::string fault;  // what allocate() found
    bool gone = false;  // held, but not in the last scan
  };
  struct Shelf {
    ResourceName name;
    EnvPrefix env_prefix = EnvPrefix::pci_resource;
    std::vector<Slot> slots;
  };
  struct Watcher {
    std::size_t shelf = 0;
    std::weak_ptr<DeviceStream> stream;
  };
  struct Grant {
    Ticket ticket = 0;
    std::string env_name;
    std::vector<std::vector<OfferedDevice>> containers;
  };
  using Wakes = std::vector<std::shared_ptr<DeviceStream>>;

  // All of these want mutex_ held, save tell().
  Result<std::size_t> find_shelf(std::string_view resource) const;
  Result<Grant> reserve(std::string_view resource, std::span<const std::vector<std::string>> containers);
  void release(Ticket ticket);
  Wakes publish();
  void tell(const Wakes& wakes) const;

  const HostCheck& check_;
  const Listener listener_;

  mutable std::mutex mutex_;
  std::vector<Shelf> shelves_;  // only grows
  std::vector<Watcher> watchers_;
  std::set<Ticket> pending_;  // reserved while the host is being asked
  std::shared_ptr<const Snapshot> snapshot_;
  Ticket last_ticket_ = 0;
};

}  // namespace ferry
