// SPDX-License-Identifier: Apache-2.0
// The allocations (allocation_book.h) for several threads, with questions to the host and lists for the
// kubelet. It knows neither gRPC nor threads. Every call may come from any thread, and none waits for
// another's access to the host.
//
// The unit of allocation is the IOMMU group. Once a device is allocated, the group's other devices are
// Unhealthy in every list, whatever their resource, and requests for them are refused. The kubelet never
// reports a release. It is learnt from pod resources (reconcile()), or when the kubelet allocates the same
// device again. Neither counts while the group is found open: the kubelet forgets a static pod, or a pod
// removed by force, before its VM has ended. An open group is Unhealthy until it is closed.
//
// Places (Companion::place()) are IDs without a device, a group or an allocation. Each companion of a listed
// device has one, as healthy as the device; the answer for the device names its companions.
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
#include "kubevirt-plugin/allocation/allocation_book.h"
#include "kubevirt-plugin/allocation/preferred_allocation.h"
#include "kubevirt-plugin/allocation/snapshot.h"
#include "kubevirt-plugin/discovery/device_check.h"
#include "kubevirt-plugin/discovery/offered_device.h"
#include "kubevirt-plugin/server/device_stream.h"

namespace ferry::plugin {

/// The answer for one container.
struct Allocation {
  std::string env_name;            ///< empty: none, for Kata
  std::string env_value;           ///< the asked devices' IDs, in the order asked, joined by ","
  std::vector<std::string> ids;    ///< the same IDs, separately
  std::vector<std::string> nodes;  ///< absolute, each once
  /// Env name -> addresses: the devices' companions, in the order of the devices.
  std::map<std::string, std::string> companions;
};

class AllocationCore {
 public:
  using Ticket = AllocationBook::Ticket;
  using ListTime = AllocationBook::ListTime;
  using Allocated = std::function<void(Result<std::vector<Allocation>>)>;

  /// The thread that causes an event calls these, under no lock. A call may come late, so listeners read the
  /// snapshot and do not count events.
  struct Listener {
    std::function<void()> changed;  ///< there is a new snapshot
    std::function<void()> doubted;  ///< the host contradicted the scan, so another scan is needed
  };

  /// `check` must outlive this object.
  explicit AllocationCore(const DeviceCheck& check, Listener listener = {},
                          VgpuPlacement placement = VgpuPlacement::pack);

  /// Resources of an earlier plugin process whose IDs were numbers (kata_key()).
  void came_before(std::set<std::string> former);

  /// Takes a new scan. IDs are unique over all resources. A listed device that is one of `lost` (by its ID or
  /// its name in sysfs) stays listed, Unhealthy for the reason given there. An allocated device stays until
  /// its release, even if it has left the host. A resource stays, if need be without devices. Objections of
  /// earlier allocate() calls are forgotten.
  ///
  /// A device that is one of `reassigned` (likewise) has another purpose on the host now. It leaves the list,
  /// or, if allocated, is Unhealthy for that reason until its release.
  void replace(std::span<const Resource> scanned, std::span<const NotOffered> lost = {},
               std::span<const NotOffered> reassigned = {});

  /// Lists the devices that have `node` ("/dev/vfio/15") as Unhealthy until the next scan, so that a loss
  /// shows at once.
  void node_gone(const std::string& node);

  std::shared_ptr<const Snapshot> snapshot() const;

  /// A stream of one resource's lists that begins with the present one. `wake` is called like a Listener
  /// whenever a list may be waiting. Errc::not_found: no such resource is advertised.
  Result<std::shared_ptr<DeviceStream>> watch(std::string_view resource, std::function<void()> wake);

  /// Allocates the devices of one request, all of them or none; `containers` has a list of IDs for each
  /// container. The kubelet decides when a device is free: a request for an allocated device ends that whole
  /// allocation, because a container's devices are released together. A place has no allocation here, so each
  /// listed place is granted, whatever its health, with an empty answer.
  ///
  /// Errors name the ID and the reason. Errc::not_found: no such resource or device. Errc::usage: an empty
  /// request, or one ID twice. Errc::refused: the device is Unhealthy, or its group is allocated or open; an
  /// open group stays Unhealthy until reconcile() or another request finds it closed. DeviceCheck's error:
  /// the device no longer matches the scan, and is listed as Unhealthy from then on.
  ///
  /// `allocated` is called once, on the thread that DeviceCheck::ask() uses. If that was another thread, the
  /// caller must touch nothing after this call, since its objects may be gone.
  void allocate(std::string_view resource, std::span<const std::vector<std::string>> containers,
                Allocated allocated);

  /// The devices that suit a container best (preferred_allocation.h). Places are all alike, so the first by
  /// ID are preferred. Errc::not_found: no such resource.
  Result<std::vector<std::string>> prefer(std::string_view resource, std::span<const std::string> available,
                                          std::span<const std::string> must_include, int size) const;

  /// True if an allocation of the resource is in no list, perhaps because its device had another name.
  bool is_claimed(std::string_view resource) const;

  /// The number of the last allocation.
  Ticket ticket() const;

  /// Makes the allocations match the kubelet's list. Allocations up to `time.settled` of which the list names
  /// no device are released, unless a process has one's group open. Devices that the list names and that have
  /// no allocation become allocated. Exempt are containers whose devices have been allocated again since the
  /// list was requested. The kubelet lists a pod a little after its Allocate, so only allocations older than
  /// the list before count as released.
  ///
  /// The list may name a device that is not listed here: under an earlier name, or not fit to be advertised
  /// now. It still blocks its IOMMU group, whose other devices are Unhealthy until the release.
  void reconcile(std::span<const Holding> held, const ListTime& time);

 private:
  struct Watcher {
    std::size_t shelf = 0;
    std::weak_ptr<DeviceStream> stream;
  };
  struct Verdict : AllocationBook::Doubts {
    std::vector<Allocation> allocations;
    std::optional<Error> error;  // with an error there are no allocations
  };
  struct News {
    bool snapshot = false;  // a new snapshot exists
    std::vector<std::shared_ptr<DeviceStream>> wakes;
  };

  static Verdict judge(const AllocationBook::Grant& grant, HostAnswer said);
  Result<std::vector<Allocation>> conclude(const AllocationBook::Grant& grant, HostAnswer said);

  // Without mutex_: these ask the host.
  /// `scanned`: resources that are about to be offered, too.
  AllocationBook::Groups ask_groups(std::span<const Holding> held,
                                    std::span<const Resource> scanned = {}) const;
  /// Maps each group of devices that may have been released to whether it is open.
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

}  // namespace ferry::plugin
