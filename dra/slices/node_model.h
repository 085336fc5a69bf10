// SPDX-License-Identifier: Apache-2.0
// A node as its ResourceSlices show it: plain values, independent of sysfs and of the API server.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "dra/slices/resource_slice.h"
#include "vfio/pci/pci_address.h"

namespace ferry::dra {

enum class VgpuFramework {
  none,         ///< the GPU makes no vGPUs
  mdev,         ///< a VM gets a mediated device, which has a UUID
  vendor_vfio,  ///< a VM gets a virtual function
};

/// A vGPU type of a GPU without vGPUs. A GPU with vGPUs lists fewer types, so the caller remembers them.
struct VgpuType {
  std::string id = {};                ///< "nvidia-1150", or "1150"
  std::string name = {};              ///< the driver's: "NVIDIA L40S-6Q"
  std::string short_name = {};        ///< as profiles have it: "L40S-6Q"
  std::uint32_t framebuffer_mib = 0;  ///< 0: unknown, and the type is not published
  std::optional<std::uint32_t> most_per_gpu =
      {};                                      ///< of vGPUs of this type alone; absent: memory is the limit
  bool allowed = true;                         ///< the admin allows it. False: it is not published
  std::uint32_t size = 0;                      ///< of a GPU with mixed sizes: in the driver's unit
  std::vector<std::uint32_t> placements = {};  ///< of a GPU with mixed sizes: first units, ascending
};

enum class GpuHealth {
  ready,
  preparing,  ///< its mode is being changed; devices are tainted until that is done
  unhealthy,
};

struct Gpu {
  vfio::PciAddress address;
  std::uint32_t iommu_group = 0;
  std::uint16_t vendor = 0;
  std::uint16_t device = 0;
  std::string product = {};      ///< "GH100 [H100 SXM5 80GB]"; may be of any length
  std::uint32_t memory_mib = 0;  ///< 0: unknown
  std::optional<int> numa_node = {};
  std::string pcie_root = {};  ///< "pci0000:16"; empty: unknown
  /// The fabric's partition of each size to which the GPU belongs: 2 -> 5. Empty: unknown.
  std::map<std::uint32_t, std::uint32_t> partitions = {};
  bool for_dra = true;  ///< its policy is `allocation: dra`
  bool whole = true;    ///< the policy lets VMs have the whole GPU
  VgpuFramework framework = VgpuFramework::none;
  /// vGPUs of several sizes may exist at a time, each at a placement. So it is with GPU instances (MIG),
  /// whose memory slices are the unit. False: all vGPUs have one size.
  bool mixed_sizes = false;
  std::vector<VgpuType> types = {};
  GpuHealth health = GpuHealth::ready;
  std::string reason = {};  ///< of its health, in a few words: "fatal PCIe errors"
};

/// A device that a claim has: from the moment in which its preparation begins until it is undone.
struct HeldDevice {
  std::string claim;  ///< UID
  vfio::PciAddress gpu;
  Device device;        ///< as it was published, without taints
  CounterSet counters;  ///< as its Publication had it; no name: the device uses no counters
};

struct NodeModel {
  SliceOwner owner;
  std::vector<Gpu> gpus;
  std::vector<HeldDevice> held = {};
  /// The names of devices of the node's pool in the allocations of ResourceClaims, prepared or not.
  std::set<std::string> allocated = {};
  ServerFeatures server = {};

  /// nullptr: the node has no such GPU.
  const Gpu* find(const vfio::PciAddress& address) const {
    const auto found = std::ranges::find(gpus, address, &Gpu::address);
    return found == gpus.end() ? nullptr : &*found;
  }
};

}  // namespace ferry::dra
