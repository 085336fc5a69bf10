// SPDX-License-Identifier: Apache-2.0
// Who has what (allocation_book.h), kept while the host is asked and the kubelet is told. Knows neither gRPC
// nor threads; every call may come from any thread and none waits for another's host access.
//
// The IOMMU group is the unit. From the moment that a device is allocated, the group's other devices are
// Unhealthy in every list, whatever their resource, and refused to others. The kubelet never says that a
// device came free: that is learnt from pod resources (reconcile()), or from the kubelet giving the same
// device out again. Neither counts while the group is still open, where its node can be asked: the kubelet
// forgets a pod that is removed by force, or a static one, before its VM has ended. What is found open so is
// Unhealthy until it is closed.
//
// Places (Companion::place()) are no devices: nobody holds one here, and none is of a group. There is one for
// each companion of a listed device, as healthy as that; the answer for the device names its companions.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/result.h"
#include "kubevirt-plugin/allocation_book.h"
#include "kubevirt-plugin/device_check.h"
#include "kubevirt-plugin/device_stream.h"
#include "kubevirt-plugin/offered_device.h"
#include "kubevirt-plugin/preferred_allocation.h"
#include "kubevirt-plugin/snapshot.h"

namespace ferry {

/// What one container gets.
struct Allocation {
  std::string env_name;            ///< empty: none, for Kata
  std::string env_value;           ///< the asked devices' IDs, in the order asked, joined by ","
  std::vector<std::string> ids;    ///< the same apart
  std::vector<std::string> nodes;  ///< absolute, each once
  /// Env name -> addresses: the devices' companions, in the order of the devices.
  std::map<std::string, std::string> companions;
};

class AllocationCore {
 public:
  using Ticket = AllocationBook::Ticket;
  using ListTime = AllocationBook::ListTime;
  using Allocated = std::function<void(Result<std::vector<Allocation>>)>;

  /// Called from the thread that caused it, under no lock. It may come late: look again, do not count.
  struct Listener {
    std::function<void()> changed;  ///< there is a new snapshot
    std::function<void()> doubted;  ///< the host contradicted the scan: time for another
  };

  /// `check` must outlive this.
  explicit AllocationCore(const DeviceCheck& check, Listener listener = {},
                          VgpuPlacement placement = VgpuPlacement::pack);

  /// Resources whose IDs were ours, and numbers (kata_key()), before this process.
  void came_before(std::set<std::string> former);

  /// A new scan. IDs are unique over all resources. A device that was listed and is one of `lost` (by its ID,
  /// or by what sysfs calls it) stays so, Unhealthy for the reason given there; one that is allocated stays
  /// until it is released, wherever it has gone; a resource once named stays, if need be without devices.
  /// What allocate() found wrong before is forgotten.
  ///
  /// One of `reassigned` (likewise) has another task on the host by now: it leaves the list, or is Unhealthy
  /// for that reason and leaves with its release.
  void replace(std::span<const Resource> scanned, std::span<const NotOffered> lost = {},
               std::span<const NotOffered> reassigned = {});

  /// Lists the devices that have `node` ("/dev/vfio/15") as Unhealthy until the next scan: a loss need not
  /// wait for one.
  void node_gone(const std::string& node);

  std::shared_ptr<const Snapshot> snapshot() const;

  /// A stream of one resource's lists that begins with the present one. `wake` is called, as a Listener is,
  /// whenever there may be something to take. Errc::not_found when no such resource is offered.
  Result<std::shared_ptr<DeviceStream>> watch(std::string_view resource, std::function<void()> wake);

  /// Gives the devices of one request, one list of IDs for each of its containers: all of them or none. The
  /// kubelet knows when a device is free: asked for one that is allocated, its earlier allocation is void as
  /// a whole, since a container's devices come free together. Of a place it alone says whether it is free:
  /// one that is listed is given, with nothing, whatever its health.
  ///
  /// Errors name the ID and the reason. Errc::not_found: no such resource or device. Errc::usage: nothing
  /// asked for, or one ID twice. Errc::refused: Unhealthy, or its group is held or open; what is open is
  /// Unhealthy until reconcile() or another request finds it closed. DeviceCheck's error: it is not what was
  /// offered any more; it is listed Unhealthy from then on.
  ///
  /// `allocated` is called once, as DeviceCheck::ask() calls back: touch nothing after this where that was
  /// another thread.
  void allocate(std::string_view resource, std::span<const std::vector<std::string>> containers,
                Allocated allocated);

  /// Which devices a container had best get (preferred_allocation.h); of places, which are all alike, the
  /// first by ID. Errc::not_found: no such resource.
  Result<std::vector<std::string>> prefer(std::string_view resource, std::span<const std::string> available,
                                          std::span<const std::string> must_include, int size) const;

  /// Whether something of a resource is held that is in no list: as it was called before, perhaps.
  bool is_claimed(std::string_view resource) const;

  /// The last allocation so far.
  Ticket ticket() const;

  /// Makes allocations what the kubelet says is held: those up to `time.settled` of which it names no device
  /// are released, unless a process has one's group open; devices that it names and nobody has are taken to
  /// be allocated, save those of a container whose devices have been given anew since it was asked. The
  /// kubelet lists a pod a little after its Allocate: so what one list does not name may be too new for it,
  /// and what is older than the list before it is not.
  ///
  /// What it names and no list has (offered under another name before, or not fit to be offered now) holds
  /// its IOMMU group all the same: its other devices are Unhealthy and given to nobody until it is released.
  void reconcile(std::span<const Holding> held, const ListTime& time);

 private:
  struct Watcher {
    std::size_t shelf = 0;
    std::weak_ptr<DeviceStream> stream;
  };
  struct Verdict : AllocationBook::Doubts {
    std::vector<Allocation> allocations;
    std::optional<Error> error;  // then there are none
  };
  struct News {
    bool snapshot = false;  // there is another one
    std::vector<std::shared_ptr<DeviceStream>> wakes;
  };

  static Verdict judge(const AllocationBook::Grant& grant, HostAnswer said);
  Result<std::vector<Allocation>> conclude(const AllocationBook::Grant& grant, HostAnswer said);

  // Without mutex_: these ask the host.
  /// `scanned`: resources that are about to be offered, too.
  AllocationBook::Groups ask_groups(std::span<const Holding> held,
                                    std::span<const Resource> scanned = {}) const;
  /// Of the groups of what may have been released: whether each is open.
  std::map<std::uint32_t, bool> ask_released(std::span<const Holding> held, const ListTime& time) const;

  // These want mutex_ held, save tell().
  Result<std::vector<Allocation>> take_places(std::size_t shelf,
                                              std::span<const std::vector<std::string>> containers) const;
  News publish();
  void tell(const News& news) const;

  const DeviceCheck& check_;
  const Listener listener_;
  const VgpuPlacement placement_;

  mutable std::mutex mutex_;
  AllocationBook book_;
  std::vector<Watcher> watchers_;
  std::shared_ptr<const Snapshot> snapshot_;
};

}  // namespace ferry
