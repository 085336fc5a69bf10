// SPDX-License-Identifier: Apache-2.0
// Decides which devices a node publishes: pure functions of a NodeModel.
//
// The scheduler adds up the counters of allocated devices that are listed now. A device that is allocated and
// no longer listed, or is listed with other counters, would free memory that a VM uses. So:
//   - names and counters of a device depend only on the GPU's hardware and on its mode (one size or mixed
//     sizes), not on its vGPUs. A policy changes the mode only while the GPU has no vGPUs
//   - a held device is published with the name and the counters that it had. If the counters of its group
//     would be others by now, the group has only the devices of claims until these claims end
//   - a device that is allocated stays published, also before it is prepared
//   - a device that must not be allocated gets a taint; only devices that no claim has go away. A held device
//     has a taint too: the API may have forgotten its claim, and the node would refuse another claim. Each
//     device for which such a forgotten claim leaves no room has a taint as well. A server that stores no
//     taints may allocate these devices: the new claim then waits until the node has undone the forgotten one
//
// The scheduler compares all counter sets of a pool for each device: a single negative counter would stop the
// allocation of all GPUs. Claims can overdraw a set if one was allocated from old slices. Then the slices
// have the set with as much as these claims use, and all other devices of its group get a taint.
//
// Each IOMMU group has a counter set. The whole device of the group consumes all of it. A vGPU consumes from
// the counters of its GPU:
//   framebuffer  memory in bytes. Its value is the largest memory that vGPUs of one type can have together,
//                since drivers round the sizes of types up
//   instances    only if the maximum of a type is below the number that fits into memory
//   unit-NN      one for each placement unit of a GPU with mixed sizes
//   gi-PROFILE   the GPU instances (MIG) of a profile, each of which a vGPU fills
//   vf           the virtual functions that VMs get whole
//   gpu          of a GPU whose memory is unknown and which has no vGPU types
// If the group has several GPUs, each counter ends in the GPU's address.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "dra/slices/node_model.h"
#include "dra/slices/resource_slice.h"
#include "vfio/pci/pci_address.h"

namespace ferry::dra {

// The counters of one GPU, and the vGPUs that consume them (gpu_plan.cpp).

/// A vGPU that a GPU can make.
struct Vgpu {
  const VgpuType* type = nullptr;  ///< in the GPU's types
  std::uint32_t number = 0;        ///< slot or placement
  Counters counters = {};
};

/// The counters of a GPU, and all vGPUs that it can make, also of types that the admin does not allow.
struct GpuPlan {
  Counters counters;
  std::vector<Vgpu> vgpus = {};
  std::uint64_t framebuffer_mib = 0;  ///< 0: unknown
};

/// `gpus_of_group`: GPUs of the IOMMU group, which share the counters that a set can have. `notes` gets a
/// line for each type that is left out.
GpuPlan plan_gpu(const Gpu& gpu, std::size_t gpus_of_group, std::vector<std::string>& notes);

struct PublishedDevice {
  api::RequestedDevice
      asked;  ///< by which hostd knows it; a whole device has the first GPU of its IOMMU group
  Device device;
  bool allocated = false;  ///< to a ResourceClaim
  bool published = true;   ///< also while no claim has it
};

struct Publication {
  std::vector<CounterSet> counter_sets;  ///< in order of IOMMU group; with the GPUs' own values
  /// They are in order of preference, since the scheduler takes the first device that fits: vGPUs from small
  /// to large, each size from the first GPU on, then whole GPUs from the last GPU on. So vGPUs fill some
  /// GPUs, and the others stay free to be given whole.
  std::vector<PublishedDevice> devices;
  std::vector<std::string> notes;  ///< parts of the hardware that are not published, each with the reason

  /// nullptr: there is none.
  const PublishedDevice* device(std::string_view name) const;
  const CounterSet* counter_set(std::string_view name) const;
};

Publication publication_of(const NodeModel& node);

/// The slices of a node's pool: counter sets first, then devices. At least one slice, so that an empty pool
/// differs from a missing one. A counter has at least the value that allocated devices consume.
std::vector<ResourceSlice> slices_of(const Publication& publication, const SliceOwner& owner,
                                     std::uint64_t generation);

/// The generation for `next` (whose own generations are not read), which replaces the `published` slices of
/// the pool. It is theirs if each slice keeps its counter sets, its devices and their counters: then every
/// slice can be updated alone. Else it is the next one after theirs and after `last`, the last one that this
/// process sent or found; 0: none.
std::uint64_t generation_for(std::span<const ResourceSlice> published, std::span<const ResourceSlice> next,
                             std::uint64_t last = 0);

/// Copies from the `published` slices when each taint was added, to taints that have no time. Without a time
/// the server would take each update for a new taint, and pods that tolerate it for some time would stay for
/// ever.
void keep_taint_times(std::span<const ResourceSlice> published, std::span<ResourceSlice> next);

/// Succeeds if a claim can have these devices now, all of them. The scheduler may have allocated devices that
/// it cannot have: the scheduler saw older slices, or the vGPUs of the GPU have another size.
/// Errc::not_found: the node has no such device. Errc::refused: another claim has the device, its GPU or the
/// memory, or the GPU is not ready; the claim waits. Errc::unsupported: KubeVirt cannot take the device,
/// since its PCI domain has more than four digits. `claim`: its UID; devices that it has already are no
/// obstacle.
Result<> check_available(const NodeModel& node, const Publication& publication,
                         std::span<const std::string> devices, std::string_view claim);

}  // namespace ferry::dra
