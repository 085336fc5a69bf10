// SPDX-License-Identifier: Apache-2.0
// The allocations (allocations.h) for several threads, with questions to the host and lists for the
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
#include "kubevirt-plugin/allocation/allocations.h"
#include "kubevirt-plugin/allocation/snapshot.h"
#include "kubevirt-plugin/discovery/device_check.h"
#include "kubevirt-plugin/discovery/scanned_device.h"

namespace ferry::plugin {

/// The GPUs that a pod's vGPUs come from.
enum class VgpuPlacement {
  pack,    ///< the fullest GPUs, so that others stay free for larger types or passthrough
  spread,  ///< the emptiest GPUs, so that each vGPU gets more of its GPU
};

/// The `size` devices that suit a container best. The result does not depend on the order of the input, which
/// is random from the kubelet. Among equally good devices the first by ID are chosen.
///
/// The devices come from one NUMA node if one suffices: preferably that of the devices that must be included,
/// else the one with the fewest devices left over. If none suffices, they come from as few nodes as possible.
/// Devices without a known node, or not in `candidates`, count as one node of their own. Within a node the
/// devices have the fewest bridges between each other and the included ones, below the switch or in the IOMMU
/// group with the fewest left over. vGPUs also come from one node, and there from the GPUs that `placement`
/// prefers; among nodes that can hold the whole request, the one with the best GPU is chosen.
///
/// The answer begins with `must_include` in its order; the rest follows in the order of `available`. Repeated
/// IDs count once. The answer is shorter than `size` if there are no more devices.
///
/// Errors: Errc::usage: more devices must be included than `size`, or `size` is negative.
Result<std::vector<std::string>> preferred_allocation(std::span<const ScannedDevice> candidates,
                                                      std::span<const std::string> available,
                                                      std::span<const std::string> must_include, int size,
                                                      VgpuPlacement placement = VgpuPlacement::pack);

// The lists for the kubelet, made from an Allocations by pure functions.

struct NextLists {
  std::shared_ptr<const Snapshot> snapshot;
  std::vector<bool> to_send;  ///< by resource: the kubelet would notice a difference to the list before
};

/// The next lists after `before`; absent: nothing has changed. `stale` is the result of
/// Allocations::take_stale(): other resources keep their lists.
std::optional<NextLists> next_lists(const Allocations& allocations, const std::vector<bool>& stale,
                                    const Snapshot& before);

/// The queue of lists for one listener. Each list replaces the one before, so only the newest is kept, and a
/// listener that does not read costs one list. Any thread may call.
class DeviceStream {
 public:
  explicit DeviceStream(std::function<void()> wake) : wake_(std::move(wake)) {}

  /// The newest list not taken yet; nullptr: there is none.
  std::shared_ptr<const ListedResource> take() {
    const std::scoped_lock lock(mutex_);
    return std::exchange(next_, nullptr);
  }

  /// AllocationCore calls this. Its own lock keeps the lists in order, and it wakes the listener after
  /// unlocking.
  void put(std::shared_ptr<const ListedResource> list) {
    const std::scoped_lock lock(mutex_);
    next_ = std::move(list);
  }
  void wake() const {
    if (wake_) wake_();
  }

 private:
  const std::function<void()> wake_;
  std::mutex mutex_;
  std::shared_ptr<const ListedResource> next_;
};

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
  using Ticket = Allocations::Ticket;
  using ListTime = Allocations::ListTime;
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
  /// See Allocations::remember_used() and follow().
  void remember_used(Allocations::UseCounts used);
  void follow(std::span<const api::SanitizedDevice> sanitized);

  /// Takes a new scan. IDs are unique over all resources. A listed device that is one of `lost` (by its ID or
  /// its name in sysfs) stays listed, Unhealthy for the reason given there. An allocated device stays until
  /// its release, even if it has left the host. A resource stays, if need be without devices. Objections of
  /// earlier allocate() calls are forgotten.
  ///
  /// A device that is one of `reassigned` (likewise) has another purpose on the host now. It leaves the list,
  /// or, if allocated, is Unhealthy for that reason until its release.
  void replace(std::span<const Resource> scanned, std::span<const NotAdvertised> lost = {},
               std::span<const NotAdvertised> reassigned = {});

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
  /// the device no longer matches the scan, and is listed as Unhealthy from then on. kBeingSanitized: hostd
  /// has to sanitize the device first. If the request has shown that an earlier allocation of it is over,
  /// that one is released now. The caller may ask again after the next follow().
  ///
  /// `allocated` is called once, on the thread that DeviceCheck::ask() uses. If that was another thread, the
  /// caller must touch nothing after this call, since its objects may be gone.
  void allocate(std::string_view resource, std::span<const std::vector<std::string>> containers,
                Allocated allocated);

  /// The devices that suit a container best (preferred_allocation()). Places are all alike, so the first by
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
    std::size_t resource_devices = 0;
    std::weak_ptr<DeviceStream> stream;
  };
  struct Verdict : Allocations::Doubts {
    std::vector<Allocation> allocations;
    std::optional<Error> error;  // with an error there are no allocations
  };

  static Verdict judge(const Allocations::Grant& grant, HostAnswer said);
  Result<std::vector<Allocation>> conclude(const Allocations::Grant& grant, HostAnswer said);

  // The caller of these does not hold mutex_. The first two ask the host.
  /// `scanned`: resources that are about to be advertised, too.
  Allocations::Groups ask_groups(std::span<const Holding> held, std::span<const Resource> scanned = {}) const;
  /// Maps each group of devices that may have been released to whether it is open.
  std::map<std::uint32_t, bool> ask_released(std::span<const Holding> held, const ListTime& time) const;
  /// Changes the allocations by `how` under mutex_, makes the next lists, and then wakes their listeners.
  void change(const std::function<void()>& how);

  /// The caller holds mutex_.
  Result<std::vector<Allocation>> take_places(std::size_t resource_devices,
                                              std::span<const std::vector<std::string>> containers) const;

  const DeviceCheck& check_;
  const Listener listener_;
  const VgpuPlacement placement_;

  mutable std::mutex mutex_;
  Allocations allocations_;
  std::vector<Watcher> watchers_;
  std::shared_ptr<const Snapshot> snapshot_;
};

}  // namespace ferry::plugin
